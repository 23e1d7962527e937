"""Counts late requests against the number that a percentile allows, and bounds the percentile. Pure.

P99 is above a latency x if more than 1 % of all requests take longer than x. So the share of requests over the limit
decides: kept if its upper confidence bound is within the allowed share, missed if its lower bound is above. The
interval of the percentile is the same test at other latencies (Woodruff, Journal of the American Statistical
Association 47, 1952), so each end is a measured latency or unknown.

Late requests come in bursts. The bound is the exact binomial one for the effective sample size (`statistics`), whose
design effect is measured on blocks of time: at least `BLOCK_S` long, and about `BLOCKS` of them in a longer run (batch
means: Schmeiser, Operations Research 30, 1982). If few requests are late, their bursts are not known. Then the bursts
above the percentile's estimate stand in for them, up to `BURST_S`: without late requests the test concludes within a
minute at any rate. Arrivals that come together count as one, by their index of dispersion.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from inference_recommender.capacity.arrivals import markov_arrivals, memory_s
from inference_recommender.capacity.levels import per_block
from inference_recommender.capacity.probe import IN_FLUX, ProbeRecords
from inference_recommender.capacity.statistics import (
    ROUNDING,
    EffectiveShare,
    Floats,
    Indices,
    design_effect,
    few_blocks_effect,
)
from workloads import POISSON, ArrivalProcess

Verdict = Literal["kept", "missed", "unclear"]

ERROR = 0.0125
"""The nominal error of each bound, over all looks. Simulated services err two to three times as often, since few
blocks understate the dependence: 95 % is the measured coverage."""
BLOCK_S = 2.0
"""Seconds: long compared with a queue's busy period."""
BLOCKS = 24
RISING = 4.0
"""Standard score of a rise, which a stationary run has three times in 100,000."""
MEMORIES = 2.0
"""Shortest block in multiples of a burst and its pause."""
BURST_S = 0.07
"""Seconds of arrivals that one unobserved burst of late requests is assumed to delay at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PercentileInterval:
    """A percentile in milliseconds with its interval, and the late requests of the same runs."""

    latency_ms: float
    """Infinite if more requests failed or had no answer than the percentile allows."""
    low_ms: float
    """0 if no lower end is known."""
    high_ms: float
    """Infinite if no upper end is known."""
    requests: int
    late: int
    """Requests over the limit. Failed requests count as late."""
    late_allowed: int
    errors: int
    """Requests that failed or had no answer."""
    duration_s: float
    """Seconds without the beginning of each run, in which its queue fills up."""
    verdict: Verdict
    rises: bool
    """Whether the latency rises during the runs. They are not stationary then, and a kept limit is not concluded."""


def percentile_interval(
    seen: Sequence[ProbeRecords],
    percentile: float,
    limit_ms: float,
    error: float = ERROR,
    arrivals: ArrivalProcess = POISSON,
) -> PercentileInterval:
    """Judges the requests of runs at one rate; the beginning of each run is left out (`IN_FLUX`)."""
    blocks, allowed = _blocks(seen, memory_s(arrivals) * MEMORIES), 1 - percentile / 100
    ordered = np.sort(blocks.latencies_ms)
    latency_ms = float(ordered[int(percentile / 100 * (len(ordered) - 1))]) if len(ordered) else np.inf
    rate_per_s = float(blocks.requests.sum()) / blocks.duration_s
    together = max(markov_arrivals(arrivals, rate_per_s).dispersion(BLOCK_S), 1.0) if rate_per_s else 1.0
    burst = BURST_S * rate_per_s * together
    least_effect = max(min(blocks.design_effect(latency_ms, error), burst), together)

    def shown(latency: float, *, below: bool) -> bool:
        """Returns whether a latency is shown to be below (or above) the percentile: too many (or few) are later."""
        share = blocks.share_later(latency, least_effect, error)
        return share.shown_above(allowed, error) if below else share.shown_below(allowed, error)

    places = range(len(ordered))
    low = bisect_left(places, True, key=lambda place: not shown(float(ordered[place]), below=True))
    high = bisect_left(places, True, key=lambda place: shown(float(ordered[place]), below=False))
    low_ms = float(ordered[low]) if low < len(ordered) and shown(-np.inf, below=True) else 0.0
    high_ms = float(ordered[high]) if high < len(ordered) else np.inf
    verdict: Verdict = "unclear"
    rises = bool(blocks.trend() > RISING)
    if shown(limit_ms, below=False):
        verdict, high_ms = "unclear" if rises else "kept", min(high_ms, limit_ms)
    elif shown(limit_ms, below=True):
        verdict, low_ms = "missed", max(low_ms, limit_ms)
    return PercentileInterval(
        latency_ms=latency_ms,
        low_ms=low_ms,
        high_ms=high_ms,
        requests=len(ordered),
        late=int((ordered > limit_ms).sum()),
        late_allowed=int(allowed * len(ordered) + ROUNDING),
        errors=int(np.isinf(ordered).sum()),
        duration_s=blocks.duration_s,
        verdict=verdict,
        rises=rises,
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Blocks:
    latencies_ms: Floats
    block_of_request: Indices
    requests: Floats
    """Number of requests by block."""
    duration_s: float

    def share_later(self, latency_ms: float, least_effect: float, error: float) -> EffectiveShare:
        count, total = float(self._later(latency_ms).sum()), float(self.requests.sum())
        effect = max(self.design_effect(latency_ms, error), least_effect)
        known = len(self.requests) > 1
        return EffectiveShare(share=count / max(total, 1.0), requests=total / effect if known else 0.0)

    def design_effect(self, latency_ms: float, error: float) -> float:
        events = self._later(latency_ms)
        if len(events) < 2 or not events.any():
            return 0.0
        return design_effect(events, self.requests) * few_blocks_effect(len(events), error)

    def trend(self) -> float:
        """Returns the standard score of a rise of the blocks' medians (Mann, Econometrica 13, 1945)."""
        blocks = len(self.requests)
        of_block = [self.latencies_ms[self.block_of_request == block] for block in range(blocks)]
        medians = np.minimum([np.median(each) for each in of_block if len(each)], 1e9)
        pairs = np.triu(np.sign(medians[None, :] - medians[:, None]), 1)
        return float(pairs.sum()) / np.sqrt(blocks * (blocks - 1) * (2 * blocks + 5) / 18) if blocks > 1 else 0.0

    def _later(self, latency_ms: float) -> Floats:
        return per_block(self.block_of_request, self.latencies_ms > latency_ms, len(self.requests))


def _blocks(seen: Sequence[ProbeRecords], least_s: float) -> _Blocks:
    kept_s = [run.duration_s * (1 - IN_FLUX) for run in seen]
    block_s = max(BLOCK_S, least_s, sum(kept_s) / BLOCKS)
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
