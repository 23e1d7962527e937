"""The latency limit of a measurement, and statistics of requests that depend on their neighbours. Pure.

A batching server answers requests in groups and a stall delays many, so n requests carry less information than n
independent ones. The design effect is the ratio of two variances of a share between blocks of time: the measured one,
and that of independent requests. n divided by it is the effective sample size (Kish, Survey Sampling, 1965, 8.2) of
exact binomial tests (Korn and Graubard, Survey Methodology 24, 1998, with Student's t for few blocks).

SciPy is imported where it is called, because that takes time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Indices: TypeAlias = npt.NDArray[np.intp]

ONE_SIDED, LEAST_WEIGHT, ROUNDING = 0.05, 1e-9, 1e-6
"""Error of a one-sided test, the lowest weight of SciPy's isotonic regression, and how far a count may be rounded."""
MARGIN = 0.10
"""A service whose percentile is over the limit by this share passes in at most 5 % of runs."""
CONFIDENCE = 0.95
MAX_CPU_SHARE = 0.9
"""CPU time of the load generator as a share of a core. Above it, the generator is the bottleneck."""
MAX_LAG_MS = 50.0
"""The generator's 90th percentile of the delay of its ticks and of an open loop's requests, outside stalls."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """The `percentile` (99.0 for P99) of the latency must not exceed `latency_ms`. None sets no limit."""

    percentile: float
    latency_ms: float | None

    @property
    def name(self) -> str:
        """The percentile as in workload.toml: P99."""
        return f"P{self.percentile:g}"

    @property
    def allowed(self) -> float:
        """The share of requests that may be late: 0.01 for P99."""
        return 1 - self.percentile / 100

    @property
    def bound_ms(self) -> float:
        """The latency limit, or infinity."""
        return float("inf") if self.latency_ms is None else self.latency_ms


def samples_needed(percentile: float, error: float = ONE_SIDED) -> int:
    """Returns the fewest independent samples whose largest is above the percentile with probability 1 - `error`
    (Wilks, Annals of Mathematical Statistics 12, 1941).
    """
    return int(np.ceil(np.log(error) / np.log(percentile / 100)))


@dataclass(frozen=True, kw_only=True, slots=True)
class EffectiveShare:
    """A share of dependent requests with its effective sample size."""

    share: float
    requests: float

    def shown_below(self, limit: float, error: float = ONE_SIDED) -> bool:
        """Returns whether a true share of `limit` or more would come out this low with probability ≤ `error`."""
        return binomial_at_most(int(np.ceil(self.share * self.requests - ROUNDING)), int(self.requests), limit) <= error

    def shown_above(self, limit: float, error: float = ONE_SIDED) -> bool:
        """Returns whether a true share of `limit` or less would come out this high with probability ≤ `error`."""
        count = int(np.floor(self.share * self.requests + ROUNDING))
        return count > 0 and 1 - binomial_at_most(count - 1, int(self.requests), limit) <= error


def effective_share(events: Floats, requests: Floats) -> EffectiveShare:
    """Returns the share of `events` in `requests`, both counts by block, with its effective sample size: 0 for a single
    block. Without any event, requests count as independent.
    """
    total, blocks = float(requests.sum()), len(requests)
    if blocks < 2 or total == 0:
        return EffectiveShare(share=float(events.sum()) / max(total, 1.0), requests=0.0)
    effect = max(design_effect(events, requests) * few_blocks_effect(blocks, ONE_SIDED), 1.0)
    return EffectiveShare(share=float(events.sum()) / total, requests=total / effect)


def few_blocks_effect(blocks: int, error: float) -> float:
    """Returns the factor for a design effect that was measured on few blocks, in a one-sided test."""
    return float((student_t(1 - error, blocks - 1) / NormalDist().inv_cdf(1 - error)) ** 2)


def design_effect(events: Floats, requests: Floats) -> float:
    """Returns how many dependent requests carry the information of one independent request; 0 where all or none are
    events. At least two blocks. The numerator is by linearisation (Cochran, Sampling Techniques, 1977, 6.3).
    """
    total = float(requests.sum())
    share = float(events.sum()) / total
    if share <= 0 or share >= 1:
        return 0.0
    blocks = len(requests)
    variance = blocks / (blocks - 1) * float(((events - share * requests) ** 2).sum()) / total**2
    return variance / (share * (1 - share) / total)


def binomial_at_most(count: int, trials: int, probability: float) -> float:
    """Returns P(X ≤ count) for X ~ Binomial(trials, probability), 0 < probability < 1."""
    if not 0 <= count < trials:
        return float(count >= trials)
    from scipy.special import bdtr

    return float(bdtr(count, trials, probability))


def student_t(probability: float, degrees: int) -> float:
    """Returns the quantile of Student's t distribution with `degrees` degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


def differences_to_neighbours(values: Floats) -> Floats:
    """Returns what each value differs from the mean of its neighbours, with the variance of a single value."""
    differences: Floats = (values[:-2] - 2 * values[1:-1] + values[2:]) / np.sqrt(6)
    return differences


def isotonic(values: Sequence[float] | Floats, weights: Sequence[float] | Floats) -> Floats:
    """Returns the non-decreasing sequence nearest to `values` in weighted least squares (pool adjacent violators: Ayer
    et al., Annals of Mathematical Statistics 26, 1955).
    """
    given = np.asarray(values, dtype=np.float64)
    if bool((given[1:] >= given[:-1]).all()):
        return given
    from scipy.optimize import isotonic_regression

    fitted: Floats = isotonic_regression(given, weights=np.maximum(weights, LEAST_WEIGHT)).x
    return fitted
