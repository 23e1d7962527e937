"""Statistics of requests that depend on their neighbours. Pure: arrays in, numbers out.

A batching server answers requests in groups and a stall delays many at once, so n requests say less than n independent
ones would. How much less is the design effect, measured on blocks of time long enough to be nearly independent: the
variance of a share between blocks over the variance it would have in independent requests. n divided by it is the
effective sample size (Kish, Survey Sampling, 1965, 8.2), to which exact binomial tests then apply (Korn and Graubard,
Survey Methodology 24, 1998: the same with Student's t for the few blocks that the variance was estimated from).

Distributions and isotonic regression are SciPy's. It takes a few tenths of a second to import, so the functions that
call it do so: a process that only sends load, or prints a request, never waits for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

ONE_SIDED = 0.05
"""The error that a one-sided test may make; its bound is one end of a 90 % interval."""
LEAST_WEIGHT = 1e-9
"""The weight of a value that has none: SciPy's isotonic regression wants weights above 0."""


def samples_needed(percentile: float, error: float = ONE_SIDED) -> int:
    """Returns the fewest independent samples whose largest bounds the percentile from above, but for a chance `error`.

    The largest of n samples lies below the percentile q with probability q^n (Wilks, Annals of Mathematical Statistics
    12, 1941).
    """
    return int(np.ceil(np.log(error) / np.log(percentile / 100)))


@dataclass(frozen=True, kw_only=True, slots=True)
class EffectiveShare:
    """A share of dependent requests, as the share of so many independent ones that says as much."""

    share: float
    requests: float
    """The effective sample size."""

    def shown_below(self, limit: float, error: float = ONE_SIDED) -> bool:
        """Returns whether a true share of `limit` or more would come out this low with probability ≤ `error`."""
        return binomial_at_most(int(np.ceil(self.share * self.requests)), int(self.requests), limit) <= error

    def shown_above(self, limit: float, error: float = ONE_SIDED) -> bool:
        """Returns whether a true share of `limit` or less would come out this high with probability ≤ `error`."""
        count = int(np.floor(self.share * self.requests))
        return count > 0 and 1 - binomial_at_most(count - 1, int(self.requests), limit) <= error


def effective_share(events: Floats, requests: Floats) -> EffectiveShare:
    """Returns the share of `events` in `requests`, both counts by block, with its effective sample size.

    The sample size is 0 for a single block. Only bursts that occurred are known: without any event, requests count as
    independent.
    """
    total = float(requests.sum())
    blocks = len(requests)
    if blocks < 2 or total == 0:
        return EffectiveShare(share=float(events.sum()) / max(total, 1.0), requests=0.0)
    effect = max(design_effect(events, requests) * few_blocks_effect(blocks, ONE_SIDED), 1.0)
    return EffectiveShare(share=float(events.sum()) / total, requests=total / effect)


def few_blocks_effect(blocks: int, error: float) -> float:
    """Returns what a design effect that was measured on so few blocks is multiplied by, in a one-sided test."""
    return float((student_t(1 - error, blocks - 1) / NormalDist().inv_cdf(1 - error)) ** 2)


def design_effect(events: Floats, requests: Floats) -> float:
    """Returns how many dependent requests say as much as one independent request.

    Arrays are counts by block, at least two blocks. 0 where every request or none is an event. The numerator is the
    variance of a ratio by linearisation (Cochran, Sampling Techniques, 1977, 6.3).
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
    if count >= trials:
        return 1.0
    if count < 0:
        return 0.0
    from scipy.special import bdtr

    return float(bdtr(count, trials, probability))


def student_t(probability: float, degrees: int) -> float:
    """Returns the quantile of Student's t distribution with `degrees` degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


def isotonic(values: Sequence[float] | Floats, weights: Sequence[float] | Floats) -> Floats:
    """Returns the non-decreasing sequence nearest to `values` in weighted least squares.

    Neighbours out of order are pooled (pool adjacent violators: Ayer et al., Annals of Mathematical Statistics 26,
    1955).
    """
    given = np.asarray(values, dtype=np.float64)
    if bool((given[1:] >= given[:-1]).all()):
        return given
    from scipy.optimize import isotonic_regression

    fitted: Floats = isotonic_regression(given, weights=np.maximum(weights, LEAST_WEIGHT)).x
    return fitted
