"""What one probe of a capacity search saw, and what counts of it: requests and late ones by block of time. Pure."""

from dataclasses import dataclass

import numpy as np

from inference_recommender.capacity.closed_loop import MARGIN, Limit
from inference_recommender.capacity.load_levels import Indices, per_block
from inference_recommender.capacity.statistics import Floats

IN_FLUX = 0.1
"""Of each probe, its beginning is left out: the queue of an idle service fills up first."""
BLOCK_S = 4.0
"""Long beside the queues that a request meets, so that blocks are nearly independent."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Seen:
    """What a probe saw: an entry per request that was due, in order of intended send."""

    duration_s: float
    intended_s: Floats
    """Since the probe's beginning."""
    latencies_ms: Floats
    """From the intended send; infinite for a request that failed or was never answered."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Probed:
    """A probe and what counts of it, without its beginning."""

    invocations_per_minute: float
    duration_s: float
    latency_ms: float
    """At the limit's percentile; infinite where more requests than it allows were never answered."""
    requests: Floats
    """By block of time; likewise below."""
    late: Floats
    far_late: Floats
    """Over the limit by `MARGIN`."""

    @property
    def late_share(self) -> float:
        return float(self.late.sum() / max(self.requests.sum(), 1))


def probed(rate_per_minute: float, seen: Seen, limit: Limit) -> Probed:
    """A probe, counted by blocks of time without its beginning."""
    bound = np.inf if limit.latency_ms is None else limit.latency_ms
    first = int(np.searchsorted(seen.intended_s, seen.duration_s * IN_FLUX))
    latencies, duration = seen.latencies_ms[first:], seen.duration_s * (1 - IN_FLUX)
    count = max(int(duration / BLOCK_S), 1)
    place = (seen.intended_s[first:] - seen.duration_s * IN_FLUX) * (count / duration)
    block: Indices = np.clip(place, 0, count - 1).astype(np.intp)
    return Probed(
        invocations_per_minute=rate_per_minute,
        duration_s=seen.duration_s,
        latency_ms=float(np.percentile(latencies, limit.percentile, method="lower")) if len(latencies) else 0.0,
        requests=per_block(block, np.ones(len(block), dtype=bool), count),
        late=per_block(block, latencies > bound, count),
        far_late=per_block(block, latencies > bound * (1 + MARGIN), count),
    )
