"""Whether a candidate is slower than a baseline by more than noise, from two runs' results. Pure.

Capacity is compared by its ratio, with an interval from the two 95 % intervals by the method of variance estimates
recovery (Donner and Zou, Statistical Methods in Medical Research 21, 2012): in logarithms, the ratio's distance to its
upper end is the root of the sum of the squares of the candidate's to its upper and the baseline's to its lower end.

Latency is compared at equal load: the difference of the mean logarithms at every number of users where the baseline
kept its limit, weighted by the inverse of its variance. The variance of a period comes from its difference to the mean
of its neighbours (Gasser, Sroka and Jennen-Steinmetz, Biometrika 73, 1986).

A difference is a regression if the whole one-sided interval is on the wrong side, and the ratio is off by more than
`MATERIAL`. The error of 5 % is divided among all comparisons (Bonferroni), so that an unchanged service fails in at
most one of twenty. How two machines of one type differ is not included.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import NormalDist

import numpy as np

from inference_recommender.capacity.statistics import ONE_SIDED, Floats, differences_to_neighbours
from inference_recommender.measurement import Measurement
from inference_recommender.sizing.verdict import sustained_rate
from workloads import LatencyObjective

MATERIAL = 0.02
"""A loss up to this share is no reason to stop a release, however certain it is."""
LARGEST_HIDDEN_LOSS = 0.25
"""Runs whose noise could hide a larger share carry no verdict."""
FEWEST_PERIODS = 10
Z95 = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One figure of one configuration, candidate over baseline."""

    configuration: str
    figure: str
    baseline: float
    candidate: float
    ratio: float
    low: float
    """The one-sided bounds of the ratio."""
    high: float
    lower_is_better: bool = False

    @property
    def is_regression(self) -> bool:
        """Whether the candidate is worse beyond the noise."""
        if self.lower_is_better:
            return self.low > 1 and self.ratio > 1 + MATERIAL
        return self.high < 1 and self.ratio < 1 - MATERIAL


@dataclass(frozen=True, kw_only=True, slots=True)
class RunComparison:
    differences: tuple[Difference, ...]
    not_compared: tuple[str, ...]
    unfit: tuple[str, ...]

    @property
    def regressions(self) -> tuple[Difference, ...]:
        return tuple(difference for difference in self.differences if difference.is_regression)


def compare(
    baseline: Sequence[Measurement], candidate: Sequence[Measurement], objective: LatencyObjective
) -> RunComparison:
    """Compares every configuration of the baseline; those that only the candidate has are ignored. The rates meet the
    objective; that of a job may meet only a P95.
    """
    of_candidate = {result.title: result for result in candidate}
    pairs = [(result, of_candidate.get(result.title)) for result in baseline]
    error = ONE_SIDED / (2 * max(len(pairs), 1))
    differences: list[Difference] = []
    not_compared: list[str] = []
    unfit = [] if pairs else ["The baseline has no results: measure it again."]
    for before, after in pairs:
        name = before.title
        if after is None:
            unfit.append(f"The candidate did not test {name}: measure it on what the baseline was measured on.")
            continue
        if reasons := [*_unfit("baseline", before, objective), *_unfit("candidate", after, objective)]:
            unfit += reasons
            continue
        capacity = _capacity(before, after, objective, error)
        differences.append(capacity)
        if (hidden := 1 - capacity.ratio / capacity.high) > LARGEST_HIDDEN_LOSS:
            unfit.append(
                f"{name}: the noise of the two runs could hide a loss of {hidden:.0%} of capacity, "
                f"more than {LARGEST_HIDDEN_LOSS:.0%}. Measure both again with longer phases."
            )
        latency = _latency(before, after, objective, error)
        if isinstance(latency, Difference):
            differences.append(latency)
        else:
            not_compared.append(f"{name}: latency was not compared: {latency}")
    return RunComparison(differences=tuple(differences), not_compared=tuple(not_compared), unfit=tuple(unfit))


def _unfit(which: str, result: Measurement, objective: LatencyObjective) -> Iterator[str]:
    name, interval = result.title, result.closed_loop_invocations_interval
    if result.failure_reason:
        yield f"The {which}'s test of {name} failed: {result.failure_reason.rstrip('.')}. Measure it again."
    elif not sustained_rate(result, objective):
        yield f"The {which} has no capacity of {name}: measure it again with lighter traffic."
    elif interval is None or interval[0] <= 0:
        yield (
            f"The {which}'s capacity of {name} has no interval: its traffic was too short, or no load clearly kept the "
            "limit. Measure it again with longer phases."
        )


def _capacity(before: Measurement, after: Measurement, objective: LatencyObjective, error: float) -> Difference:
    b_low, b, b_high = _logs(before, objective)
    c_low, c, c_high = _logs(after, objective)
    scale = NormalDist().inv_cdf(1 - error) / Z95
    up = scale * sqrt((c_high - c) ** 2 + (b - b_low) ** 2)
    down = scale * sqrt((c - c_low) ** 2 + (b_high - b) ** 2)
    return Difference(
        configuration=before.title,
        figure="max invocations per minute",
        baseline=exp(b),
        candidate=exp(c),
        ratio=exp(c - b),
        low=exp(c - b - down),
        high=exp(c - b + up),
    )


def _logs(result: Measurement, objective: LatencyObjective) -> tuple[float, float, float]:
    """Returns the logarithms of the interval's low end, the rate and the high end. Ends include the rate."""
    rate = sustained_rate(result, objective) or 0.0
    low, high = result.closed_loop_invocations_interval or (0.0, 0.0)
    return log(min(low, rate)), log(rate), log(max(high, rate))


def _latency(before: Measurement, after: Measurement, objective: LatencyObjective, error: float) -> Difference | str:
    percentile = f"p{objective.percentile_rank:g}"
    b, c = _periods(before, percentile), _periods(after, percentile)
    if b is None or c is None:
        return f"a run has no course of {objective.percentile} by users of at least {FEWEST_PERIODS} periods."
    by_users = list(_at_equal_load(b, c, log(objective.model_latency_ms)))
    if not by_users:
        return "there is no number of users at which both were measured and the baseline kept its limit."
    difference, deviation, mean = _average(by_users)
    bound = NormalDist().inv_cdf(1 - error) * deviation
    return Difference(
        configuration=before.title,
        figure=f"{objective.percentile} ms at equal load",
        baseline=exp(mean),
        candidate=exp(mean + difference),
        ratio=exp(difference),
        low=exp(difference - bound),
        high=exp(difference + bound),
        lower_is_better=True,
    )


def _periods(result: Measurement, percentile: str) -> tuple[Floats, Floats, float] | None:
    """Returns users and logarithmic latency of each period after the warm-up, and the variance of a single latency.

    Returns None without users or the percentile, or with too few periods.
    """
    series = result.series and result.series.complete()
    if series is None or percentile not in series.latency_ms:
        return None
    start = (series.seconds[0] if series.seconds else 0.0) + (result.warm_up_s or 0.0)
    rows = [
        (users, log(latency))
        for second, users, latency in zip(series.seconds, series.users, series.latency_ms[percentile], strict=True)
        if users is not None and latency and second >= start
    ]
    if len(rows) < FEWEST_PERIODS:
        return None
    users, latencies = np.array(rows, dtype=np.float64).T
    return users, latencies, float((differences_to_neighbours(latencies) ** 2).mean())


ByUsers = tuple[float, float, float]
"""At one number of users: the difference of the mean logarithms, its variance, and the baseline's mean."""


def _at_equal_load(
    before: tuple[Floats, Floats, float], after: tuple[Floats, Floats, float], limit: float
) -> Iterator[ByUsers]:
    (b_users, b_latencies, b_variance), (c_users, c_latencies, c_variance) = before, after
    for users in np.intersect1d(b_users, c_users):
        b, c = b_latencies[b_users == users], c_latencies[c_users == users]
        if b.mean() <= limit:
            yield float(c.mean() - b.mean()), b_variance / len(b) + c_variance / len(c), float(b.mean())


def _average(by_users: Sequence[ByUsers]) -> ByUsers:
    """Returns the weighted mean of the differences, its standard deviation, and the baseline's weighted mean."""
    differences, variances, means = np.array(by_users).T
    weights = 1 / np.maximum(variances, 1e-12)
    total = float(weights.sum())
    return float((weights * differences).sum()) / total, sqrt(1 / total), float((weights * means).sum()) / total
