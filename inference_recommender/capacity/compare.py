"""Whether a candidate is slower than a baseline by more than noise, from two runs' measurements. Pure.

Capacity. Its ratio, with an interval from the two 95 % intervals by the method of variance estimates recovery (Donner
and Zou, Statistical Methods in Medical Research 21, 2012): in logarithms, the ratio's distance to its upper end is the
root of the sum of the squares of the candidate's to its upper and the baseline's to its lower end.

Latency at the objective's percentile, at equal load. For every number of users at which both runs have periods and the
baseline kept its limit, the difference of the mean logarithms; these are averaged, weighted by their variances. What a
single period varies by is told by how it differs from the mean of its neighbours, which the ramp hardly touches
(Gasser, Sroka and Jennen-Steinmetz, Biometrika 73, 1986).

A difference is a regression if the whole one-sided interval is on the wrong side, and it is more than `MATERIAL`. The
error of 5 % is divided among all that is compared (Bonferroni), so that an unchanged service fails in at most one of
twenty comparisons. That holds for noise within the runs: how two machines of one type differ, two runs cannot tell.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import NormalDist

import numpy as np

from inference_recommender.capacity.statistics import ONE_SIDED, Floats
from inference_recommender.measurement import Measurement, Series
from workloads import LatencyObjective

MATERIAL = 0.02
"""A smaller loss is no reason to stop a release, however surely it is there."""
LARGEST_HIDDEN_LOSS = 0.25
"""Runs whose noise could hide more than this carry no verdict."""
FEWEST_PERIODS = 10
Z95 = NormalDist().inv_cdf(0.975)

Key = tuple[str, str | None, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Of one figure of one configuration, candidate over baseline."""

    configuration: str
    figure: str
    baseline: float
    candidate: float
    ratio: float
    worst: float
    """The ratio is no worse than this, to the error of the test."""
    best: float
    """The ratio is no better than this, likewise."""
    lower_is_better: bool

    @property
    def is_regression(self) -> bool:
        if self.lower_is_better:
            return self.best > 1 and self.ratio > 1 + MATERIAL
        return self.best < 1 and self.ratio < 1 - MATERIAL


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    differences: tuple[Difference, ...]
    not_compared: tuple[str, ...]
    """Why something could not be compared, though a verdict can be given without it."""
    unfit: tuple[str, ...]
    """Why a run cannot carry a verdict, with what to do."""

    @property
    def regressions(self) -> tuple[Difference, ...]:
        return tuple(one for one in self.differences if one.is_regression)


def compare(
    baseline: Sequence[Measurement], candidate: Sequence[Measurement], objective: LatencyObjective
) -> Comparison:
    """Every configuration of the baseline; those that only the candidate has are not looked at."""
    of_candidate = {_key(one): one for one in candidate}
    pairs = [(one, of_candidate.get(_key(one))) for one in baseline]
    error = ONE_SIDED / (2 * max(len(pairs), 1))
    differences: list[Difference] = []
    not_compared: list[str] = []
    unfit = [] if pairs else ["The baseline has no results: measure it again."]
    for before, after in pairs:
        if after is None:
            unfit.append(
                f"The candidate did not test {_name(before)}: measure it on what the baseline was measured on."
            )
            continue
        reasons = [*_unfit("baseline", before), *_unfit("candidate", after)]
        unfit += reasons
        if reasons:
            continue
        capacity = _capacity(before, after, error)
        differences.append(capacity)
        if capacity.ratio / capacity.best < 1 - LARGEST_HIDDEN_LOSS:
            unfit.append(_too_noisy(capacity))
        latency = _latency(before, after, objective, error)
        if isinstance(latency, Difference):
            differences.append(latency)
        else:
            not_compared.append(f"{_name(before)}: latency was not compared: {latency}")
    return Comparison(differences=tuple(differences), not_compared=tuple(not_compared), unfit=tuple(unfit))


def _unfit(which: str, one: Measurement) -> Iterator[str]:
    if one.failure_reason:
        yield f"The {which}'s test of {_name(one)} failed: {one.failure_reason.rstrip('.')}. Measure it again."
    elif not one.max_invocations_per_minute:
        yield f"The {which} has no capacity of {_name(one)}: measure it again, with traffic that it can bear."
    elif one.max_invocations_interval is None or one.max_invocations_interval[0] <= 0:
        yield (
            f"The {which} does not say how sure its capacity of {_name(one)} is: its traffic was too short, or no load "
            "surely kept the limit. Measure it again with longer phases."
        )


def _too_noisy(capacity: Difference) -> str:
    hidden = 1 - capacity.ratio / capacity.best
    return (
        f"{capacity.configuration}: the noise of the two runs could hide a loss of {hidden:.0%} of capacity, more than "
        f"{LARGEST_HIDDEN_LOSS:.0%}. Measure both again with longer phases."
    )


def _capacity(before: Measurement, after: Measurement, error: float) -> Difference:
    b_low, b, b_high = _logs(before)
    c_low, c, c_high = _logs(after)
    scale = NormalDist().inv_cdf(1 - error) / Z95
    up = scale * sqrt((c_high - c) ** 2 + (b - b_low) ** 2)
    down = scale * sqrt((c - c_low) ** 2 + (b_high - b) ** 2)
    return Difference(
        configuration=_name(before),
        figure="max invocations per minute",
        baseline=exp(b),
        candidate=exp(c),
        ratio=exp(c - b),
        worst=exp(c - b - down),
        best=exp(c - b + up),
        lower_is_better=False,
    )


def _logs(one: Measurement) -> tuple[float, float, float]:
    """The interval's low end, the rate and the high end; an end on the wrong side of the rate is the rate."""
    assert one.max_invocations_per_minute is not None
    assert one.max_invocations_interval is not None
    rate = one.max_invocations_per_minute
    low, high = one.max_invocations_interval
    return log(min(low, rate)), log(rate), log(max(high, rate))


def _latency(before: Measurement, after: Measurement, objective: LatencyObjective, error: float) -> Difference | str:
    """The difference, or why there is none."""
    name = f"p{objective.percentile_rank:g}"
    b, c = _course(before, name), _course(after, name)
    if b is None or c is None:
        return f"a run has no course of {objective.percentile} by users of at least {FEWEST_PERIODS} periods."
    rows = list(_at_equal_load(b, c, log(objective.model_latency_ms)))
    if not rows:
        return "there is no number of users at which both were measured and the baseline kept its limit."
    difference, deviation, mean = _average(rows)
    z = NormalDist().inv_cdf(1 - error)
    return Difference(
        configuration=_name(before),
        figure=f"{objective.percentile} ms at equal load",
        baseline=exp(mean),
        candidate=exp(mean + difference),
        ratio=exp(difference),
        worst=exp(difference + z * deviation),
        best=exp(difference - z * deviation),
        lower_is_better=True,
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Course:
    users: Floats
    latencies: Floats
    """Logarithms of milliseconds, by period."""
    variance: float
    """Of a single period."""


def _course(one: Measurement, name: str) -> _Course | None:
    """A test's periods without its warm-up; None without users or the percentile, or with too few of them."""
    series: Series | None = one.series and one.series.complete()
    if series is None or name not in series.latency_ms:
        return None
    start = (series.seconds[0] if series.seconds else 0.0) + (one.warm_up_s or 0.0)
    rows = [
        (users, log(latency))
        for second, users, latency in zip(series.seconds, series.users, series.latency_ms[name], strict=True)
        if users is not None and latency and second >= start
    ]
    if len(rows) < FEWEST_PERIODS:
        return None
    users, latencies = np.array(rows, dtype=np.float64).T
    differences = (latencies[:-2] - 2 * latencies[1:-1] + latencies[2:]) / np.sqrt(6)
    return _Course(users=users, latencies=latencies, variance=float((differences**2).mean()))


Row = tuple[float, float, float]
"""Of one number of users: difference, its variance, the baseline's mean."""


def _at_equal_load(before: _Course, after: _Course, limit: float) -> Iterator[Row]:
    for users in np.intersect1d(before.users, after.users):
        b, c = before.latencies[before.users == users], after.latencies[after.users == users]
        if b.mean() <= limit:
            yield float(c.mean() - b.mean()), before.variance / len(b) + after.variance / len(c), float(b.mean())


def _average(rows: Sequence[Row]) -> Row:
    """The weighted mean of the differences, its standard deviation, and the weighted mean of the baseline."""
    differences, variances, means = np.array(rows).T
    weights = 1 / np.maximum(variances, 1e-12)
    total = float(weights.sum())
    return float((weights * differences).sum()) / total, sqrt(1 / total), float((weights * means).sum()) / total


def _key(one: Measurement) -> Key:
    return one.instance_type, one.variant, tuple(sorted(one.environment.items()))


def _name(one: Measurement) -> str:
    environment = " ".join(f"{name}={value}" for name, value in sorted(one.environment.items()))
    return " ".join(part for part in (one.variant, one.instance_type, environment) if part)
