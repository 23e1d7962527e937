"""Statistics of requests that depend on their neighbours. Pure: arrays in, numbers out.

A batching server answers requests in groups and a stall delays many at once, so n requests say less than n independent
ones would. How much less is the design effect, measured on blocks of time long enough to be nearly independent: the
variance of a share between blocks over the variance it would have in independent requests. n divided by it is the
effective sample size (Kish, Survey Sampling, 1965, 8.2), to which exact binomial tests then apply (Korn and Graubard,
Survey Methodology 24, 1998: the same with Student's t for the few blocks that the variance was estimated from).
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


def samples_needed(percentile: float, error: float = ONE_SIDED) -> int:
    """The fewest independent samples whose largest bounds the percentile from above, but for a chance of `error`.

    That the largest of n lies below the percentile q has probability q^n (Wilks 1941).
    """
    return int(np.ceil(np.log(error) / np.log(percentile / 100)))


@dataclass(frozen=True, kw_only=True, slots=True)
class EffectiveShare:
    """A share of dependent requests, as the count out of so many independent ones that says as much."""

    share: float
    requests: float
    """The effective sample size."""

    def shown_below(self, limit: float, error: float = ONE_SIDED) -> bool:
        """Whether a true share of `limit` or more would come out as low as this with probability ≤ `error`."""
        return binomial_at_most(int(np.ceil(self.share * self.requests)), int(self.requests), limit) <= error

    def shown_above(self, limit: float, error: float = ONE_SIDED) -> bool:
        """Whether a true share of `limit` or less would come out as high as this with probability ≤ `error`."""
        count = int(np.floor(self.share * self.requests))
        return count > 0 and 1 - binomial_at_most(count - 1, int(self.requests), limit) <= error


def effective_share(events: Floats, requests: Floats) -> EffectiveShare:
    """The share of `events` in `requests`, both by block, with its effective sample size; 0 of a single block.

    It knows only the bursts that it sees: where there is no event at all, requests count as independent.
    """
    total = float(requests.sum())
    blocks = len(requests)
    if blocks < 2 or total == 0:
        return EffectiveShare(share=float(events.sum()) / max(total, 1.0), requests=0.0)
    few_blocks = (student_t(1 - ONE_SIDED, blocks - 1) / NormalDist().inv_cdf(1 - ONE_SIDED)) ** 2
    effect = max(design_effect(events, requests) * few_blocks, 1.0)
    return EffectiveShare(share=float(events.sum()) / total, requests=total / effect)


def design_effect(events: Floats, requests: Floats) -> float:
    """How many dependent requests say as much as one independent. Arrays by block, at least two blocks.

    0 where every request or none is an event. The numerator is the variance of a ratio by linearisation (Cochran,
    Sampling Techniques, 1977, 6.3).
    """
    total = float(requests.sum())
    share = float(events.sum()) / total
    if share <= 0 or share >= 1:
        return 0.0
    blocks = len(requests)
    variance = blocks / (blocks - 1) * float(((events - share * requests) ** 2).sum()) / total**2
    return variance / (share * (1 - share) / total)


def binomial_at_most(count: int, trials: int, probability: float) -> float:
    """P(X ≤ count) for X ~ Binomial(trials, probability), 0 < probability < 1; 1 where count ≥ trials.

    Each term from the one before, in logarithms.
    """
    if count >= trials:
        return 1.0
    if count < 0:
        return 0.0
    k = np.arange(1, count + 1)
    steps = np.log(trials - k + 1) - np.log(k) + np.log(probability) - np.log1p(-probability)
    terms = np.concatenate([[0.0], np.cumsum(steps)]) + trials * np.log1p(-probability)
    return float(min(np.exp(terms).sum(), 1.0))


def student_t(probability: float, degrees: int) -> float:
    """Quantile of Student's t, within 0.2 % up to 0.975 (Abramowitz and Stegun 26.7.5; closed for 1 and 2 degrees)."""
    if degrees == 1:
        return float(np.tan(np.pi * (probability - 0.5)))
    if degrees == 2:
        a = 4 * probability * (1 - probability)
        return float(2 * (probability - 0.5) * np.sqrt(2 / a))
    z = NormalDist().inv_cdf(probability)
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    g4 = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + g1 / degrees + g2 / degrees**2 + g3 / degrees**3 + g4 / degrees**4


def rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to `values` in weighted least squares: neighbours out of order are pooled.

    Pool-adjacent-violators (Ayer et al., Annals of Mathematical Statistics 26, 1955).
    """
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pool = (value, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            pool = _joined(pools.pop(), pool)
        pools.append(pool)
    return [value for value, _, members in pools for _ in range(members)]


def _joined(left: tuple[float, float, int], right: tuple[float, float, int]) -> tuple[float, float, int]:
    weight = left[1] + right[1]
    value = (left[0] * left[1] + right[0] * right[1]) / weight if weight else left[0]
    return value, weight, left[2] + right[2]
