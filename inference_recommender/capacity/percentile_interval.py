"""The confidence interval of a latency percentile at one rate of arrivals, from dependent requests. Pure.

A latency x is below the percentile q where more than a share 1 - q of all requests is later than x, and above it where
fewer are. The interval is every latency of which neither is shown: the inverse of a test of the share (Woodruff,
Journal of the American Statistical Association 47, 1952), here of the exact binomial test on the effective sample size
(`statistics`), so that an end is a latency which was measured, or unknown.

The design effect is measured on blocks of time: of `BLOCK_S` at least, and longer in a longer run, so that there are
about `BLOCKS` of them and what comes and goes over many seconds is in one block (the method of batch means with a fixed
number of batches: Schmeiser, Operations Research 30, 1982). Where few or no requests are later than x, the dependence
of those later than the percentile itself counts: rare bursts that did not happen yet are not excluded by their absence.

A sequential test looks at the same run again and again, and each look may err. With `looks` of them, each end of each
look has the error `ERROR` / `looks`, so that the interval of whichever look comes last holds with 95 % (Bonferroni's
inequality). Few looks, each at twice the time of the one before, cost little by that.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inference_recommender.capacity.levels import Indices, per_block
from inference_recommender.capacity.search import IN_FLUX, Seen
from inference_recommender.capacity.statistics import EffectiveShare, Floats, design_effect, few_blocks_effect

ERROR = 0.025
"""The error of each end of a two-sided interval of 95 %, over all looks together."""
BLOCK_S = 4.0
"""Seconds: long beside the queues that a request meets."""
BLOCKS = 24
"""A longer run has so many, and longer ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PercentileInterval:
    """A percentile in milliseconds; infinite where more requests than it allows failed or were never answered."""

    latency_ms: float
    low_ms: float
    """0 where nothing is shown to be below the percentile."""
    high_ms: float
    """Infinite where nothing is shown to be above it."""
    requests: int
    errors: int
    """Requests that failed or were never answered."""
    duration_s: float
    """Seconds without those in which a run's queue filled up."""


def percentile_interval(seen: Sequence[Seen], percentile: float, looks: int = 1) -> PercentileInterval:
    """Returns the percentile of all requests of runs at one rate; each run's beginning is left out (`IN_FLUX`)."""
    blocks = _blocks(seen)
    ordered = np.sort(blocks.latencies_ms)
    place = int(percentile / 100 * (len(ordered) - 1))
    test = _Test(blocks, 1 - percentile / 100, float(ordered[place]) if len(ordered) else np.inf, ERROR / looks)
    low, high = test.first_not_shown_below(ordered), test.first_shown_above(ordered)
    return PercentileInterval(
        latency_ms=float(ordered[place]) if len(ordered) else np.inf,
        low_ms=float(ordered[low]) if low < len(ordered) and test.shown_below(-np.inf) else 0.0,
        high_ms=float(ordered[high]) if high < len(ordered) else np.inf,
        requests=len(ordered),
        errors=int(np.isinf(ordered).sum()),
        duration_s=blocks.duration_s,
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Blocks:
    latencies_ms: Floats
    block_of_request: Indices
    requests: Floats
    """Number of requests by block."""
    duration_s: float


def _blocks(seen: Sequence[Seen]) -> _Blocks:
    kept_s = [run.duration_s * (1 - IN_FLUX) for run in seen]
    block_s = max(BLOCK_S, sum(kept_s) / BLOCKS)
    latencies: list[Floats] = []
    places: list[Indices] = []
    count = 0
    for run, duration_s in zip(seen, kept_s, strict=True):
        begin_s, in_run = run.duration_s - duration_s, max(round(duration_s / block_s), 1)
        kept = run.intended_s >= begin_s
        place = (run.intended_s[kept] - begin_s) * (in_run / duration_s)
        places.append(np.clip(place, 0, in_run - 1).astype(np.intp) + count)
        latencies.append(run.latencies_ms[kept])
        count += in_run
    block_of_request = np.concatenate(places)
    return _Blocks(
        latencies_ms=np.concatenate(latencies),
        block_of_request=block_of_request,
        requests=np.bincount(block_of_request, minlength=count).astype(np.float64),
        duration_s=sum(kept_s),
    )


class _Test:
    """Shows on which side of the percentile a latency is."""

    def __init__(self, blocks: _Blocks, allowed: float, estimate_ms: float, error: float) -> None:
        self._blocks = blocks
        self._allowed = allowed
        self._error = error
        self._effect = max(self._design_effect(self._later(estimate_ms)), 1.0)

    def shown_below(self, latency_ms: float) -> bool:
        """Returns whether a latency is below the percentile: too many requests are later for any other truth."""
        return self._share(latency_ms).shown_above(self._allowed, self._error)

    def shown_above(self, latency_ms: float) -> bool:
        return self._share(latency_ms).shown_below(self._allowed, self._error)

    def first_not_shown_below(self, ordered: Floats) -> int:
        return bisect_left(range(len(ordered)), True, key=lambda place: not self.shown_below(float(ordered[place])))

    def first_shown_above(self, ordered: Floats) -> int:
        return bisect_left(range(len(ordered)), True, key=lambda place: self.shown_above(float(ordered[place])))

    def _share(self, latency_ms: float) -> EffectiveShare:
        events, total = self._later(latency_ms), float(self._blocks.requests.sum())
        effect = max(self._design_effect(events), self._effect)
        known = len(self._blocks.requests) > 1
        return EffectiveShare(share=float(events.sum()) / max(total, 1.0), requests=total / effect if known else 0.0)

    def _later(self, latency_ms: float) -> Floats:
        return per_block(
            self._blocks.block_of_request, self._blocks.latencies_ms > latency_ms, len(self._blocks.requests)
        )

    def _design_effect(self, events: Floats) -> float:
        if len(events) < 2 or not events.any():
            return 0.0
        return design_effect(events, self._blocks.requests) * few_blocks_effect(len(events), self._error)
