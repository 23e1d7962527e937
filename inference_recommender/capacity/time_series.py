"""A test's time series in CloudWatch: interval of the capacity, and length of the warm-up. Pure.

The periods are the blocks, sorted into levels of equal users. The spread of a period's rate and latency is estimated
from its difference to the mean of its neighbours (Gasser, Sroka and Jennen-Steinmetz, Biometrika 73, 1986; by the
median). The interval runs from the highest load that surely keeps the limit to the highest that may keep it.
`rate_within` judges by the endpoint's own model latency, because a job's figure has no documented percentile.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple, Self

import numpy as np
from pydantic import Field, StringConstraints, model_validator

from inference_recommender.capacity.closed_loop import INTERVAL_S
from inference_recommender.capacity.levels import FEWEST_WINDOWS, load_levels, settled_from
from inference_recommender.capacity.statistics import (
    CONFIDENCE,
    Floats,
    Indices,
    Limit,
    differences_to_neighbours,
    isotonic,
    student_t,
)
from workloads.document import Document

FEWEST_PERIODS = 5
PERIODS_PER_DEGREE = 3
"""A deviation by the median is known as well as an ordinary one from a third of the values (Rousseeuw and Croux,
Journal of the American Statistical Association 88, 1993: 37 %)."""
MEDIAN_TO_DEVIATION = 1.4826
"""The standard deviation of a normal distribution over the median of its absolute values."""

COLUMNS = ("users", "invocations", "errors")
Quantile = Annotated[str, StringConstraints(pattern=r"^p\d{1,3}(\.\d{1,9})?$")]


class Series(Document):
    """One test's time series: a point every `period_s`, and the quantiles of model latency over the whole test."""

    period_s: int = Field(gt=0)
    seconds: tuple[float, ...] = ()
    """Beginning of each point, in seconds since the first."""
    users: tuple[float | None, ...] = ()
    invocations: tuple[float | None, ...] = ()
    errors: tuple[float | None, ...] = ()
    stalled_s: tuple[float | None, ...] = ()
    """Seconds of the period in which the measuring machine stalled or did other work; empty if no source reports it."""
    latency_ms: dict[Quantile, tuple[float | None, ...]] = {}
    """Client latency of each point by percentile: p50, p90, p95, p99."""
    model_latency_ms: dict[Quantile, tuple[float | None, ...]] = {}
    """Model latency of each point by percentile, as the endpoint's own metric has it; empty where nothing has."""
    model_latency_quantiles_ms: dict[Quantile, float] = {}
    """Model latency over the whole test by percentile: p1 to p99.9."""

    @model_validator(mode="after")
    def _have_as_many_values_as_points(self) -> Self:
        values = {name: getattr(self, name) for name in COLUMNS} | self.latency_ms
        if self.stalled_s:
            values["stalled_s"] = self.stalled_s
        values |= {f"model latency {name}": row for name, row in self.model_latency_ms.items()}
        for name, row in values.items():
            if len(row) != len(self.seconds):
                raise ValueError(f"has {len(self.seconds)} points, but {len(row)} values of {name}.")
        return self

    def invocations_per_minute(self) -> tuple[float | None, ...]:
        """Returns the rate in each period."""
        return tuple(None if count is None else count * 60 / self.period_s for count in self.invocations)

    def complete(self) -> "Series":
        """Returns the series without its first and last points, which cover only a part of their period."""
        if len(self.seconds) < 3:
            return self
        columns = {name: getattr(self, name)[1:-1] for name in ("seconds", *COLUMNS, "stalled_s")}
        for name in ("latency_ms", "model_latency_ms"):
            columns[name] = {percentile: values[1:-1] for percentile, values in getattr(self, name).items()}
        return self.model_copy(update=columns)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesFindings:
    interval: tuple[float, float] | None
    """95 % confidence interval of the whole fleet's capacity; None if too few periods keep the limit."""
    warm_up_s: float | None
    """Seconds; None if the first load was too short to show it."""


class _Periods(NamedTuple):
    users: Floats
    rates: Floats
    """Invocations per minute."""
    latencies_ms: Floats
    """The limit's percentile; 0 where there is no limit."""
    medians_ms: Floats

    def starting_at(self, first: int) -> "_Periods":
        return _Periods(*(column[first:] for column in self))


def series_findings(series: Series, limit: Limit) -> SeriesFindings:
    """Returns the findings from a test's series, without its first and last point."""
    periods = _periods(series.complete(), limit)
    if periods is None:
        return SeriesFindings(interval=None, warm_up_s=None)
    warm_up = _warm_up_periods(periods)
    settled = periods.starting_at(warm_up or 0)
    return SeriesFindings(
        interval=_interval(settled, float(series.period_s), limit) if len(settled.rates) >= FEWEST_PERIODS else None,
        warm_up_s=None if warm_up is None else float(warm_up * series.period_s),
    )


def rate_within(series: Series, limit: Limit) -> float | None:
    """Returns the highest rate of the whole fleet whose model latency keeps the limit. Returns None if every load keeps
    it, since the service may sustain more, if none does, or if no period has the model latency at that percentile.
    """
    complete = series.complete()
    periods = _periods(complete, limit, complete.model_latency_ms)
    if periods is None:
        return None
    settled = periods.starting_at(_warm_up_periods(periods) or 0)
    requests, enough_s = settled.rates * series.period_s / 60, min(INTERVAL_S, series.period_s * len(settled.rates))
    levels = load_levels(settled.users, requests, float(series.period_s), enough_s, needed=1)
    logs = [float(np.log(np.maximum(settled.latencies_ms[level], 1e-6)).mean()) for level in levels]
    latencies = np.exp(isotonic(logs, [float(len(level)) for level in levels]))
    keeping = [n for n, latency in enumerate(latencies) if latency <= limit.bound_ms]
    if len(keeping) == len(levels):
        return None
    return max((float(settled.rates[levels[n]].mean()) for n in keeping), default=None)


def _periods(
    series: Series, limit: Limit, published: dict[str, tuple[float | None, ...]] | None = None
) -> _Periods | None:
    """Returns the known periods, judged by `published` or else by the client's; None where there are none, or the
    percentile was not published.
    """
    name = f"p{limit.percentile:g}"
    judged = series.latency_ms if published is None else published
    if limit.latency_ms is not None and name not in judged:
        return None
    unlimited = (0.0,) * len(series.seconds)
    latencies = unlimited if limit.latency_ms is None else judged[name]
    columns = (series.users, series.invocations_per_minute(), latencies, series.latency_ms.get("p50", unlimited))
    known = [row for row in zip(*columns, strict=True) if None not in row]
    return _Periods(*np.array(known, dtype=np.float64).T) if known else None


def _warm_up_periods(periods: _Periods) -> int | None:
    changed = np.flatnonzero(periods.users != periods.users[0])
    first_load = int(changed[0]) if len(changed) else len(periods.users)
    return settled_from(periods.medians_ms[:first_load]) if first_load >= FEWEST_WINDOWS else None


def _interval(periods: _Periods, period_s: float, limit: Limit) -> tuple[float, float] | None:
    requests = periods.rates * period_s / 60
    levels = load_levels(periods.users, requests, period_s, INTERVAL_S, needed=1)
    t = student_t((1 + CONFIDENCE) / 2, max(len(periods.rates) // PERIODS_PER_DEGREE, 1))
    rates, errors = _log_means(levels, periods.rates)
    bound = np.log(limit.bound_ms)
    latencies, latency_errors = _log_means(levels, periods.latencies_ms)
    pooled = isotonic(latencies, [float(len(level)) for level in levels])
    if not (pooled <= bound).any():
        return None
    surely, maybe = pooled + t * latency_errors <= bound, pooled - t * latency_errors <= bound
    low = float(np.exp(rates - t * errors)[surely][-1]) if surely.any() else 0.0
    high = float(np.exp(rates + t * errors)[maybe][-1])
    return min(low, high), high


def _log_means(levels: list[Indices], values: Floats) -> tuple[Floats, Floats]:
    """Returns the mean logarithm of each level and its standard error: rates vary by a share of themselves."""
    logs = np.log(np.maximum(values, 1e-6))
    deviation = MEDIAN_TO_DEVIATION * float(np.median(np.abs(differences_to_neighbours(logs))))
    means = np.array([float(logs[level].mean()) for level in levels])
    return means, np.array([deviation / np.sqrt(len(level)) for level in levels])
