"""Estimates the capacity of one configuration from its probes. Pure.

A probe sends Poisson arrivals at a fixed rate, and each request that is later than the limit counts. The rate at which
as many are late as the percentile allows comes with its interval from all probes together (`capacity.rate_at_limit`),
a wide one from a first short probe. Far above the capacity, the backlog grows until a probe's end, and what was
answered meanwhile is the most that the server can answer, whatever the limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log
from statistics import NormalDist

import numpy as np

from inference_recommender.capacity.limit import CONFIDENCE, Limit
from inference_recommender.capacity.probe import Probe, ProbeRecords
from inference_recommender.capacity.rate_at_limit import rate_at_limit
from workloads.document import Document

IN_FLUX = 0.1
"""Share of a probe left out at its beginning, where the queue of an idle server fills up."""
BLOCK_LIMITS, SHORTEST_BLOCK_S = 10.0, 0.25
"""A block lasts so many latency limits, and at least so many seconds: requests of two blocks then hardly meet."""
LAST = 0.25
"""The last part of a probe, in which an overloaded server has only late requests …"""
BACKLOG = 0.8
"""… or at least this share; a stall before it has been worked off by then."""
NEAR = 2.0
"""The estimate takes probes within this factor of the one that is nearest to the limit."""
QUANTILE = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


class Glimpse(Document):
    """A probe's counts, without its beginning. The arrays have an entry for each block of time."""

    invocations_per_minute: float
    duration_s: float
    sent: int
    """Requests that were due, those of the beginning and of a warm-up included."""
    requests: tuple[int, ...]
    late: tuple[int, ...]
    latency_ms: float | None
    """The percentile of the limit; None where more requests than it allows were never answered."""
    ceiling_per_minute: float | None
    """Answers a minute of a server that was overloaded to the end; None where it was not."""

    @property
    def late_share(self) -> float:
        return sum(self.late) / max(sum(self.requests), 1)


def glimpse(rate_per_minute: float, seen: ProbeRecords, limit: Limit) -> Glimpse:
    """Counts the requests of a probe."""
    bound = inf if limit.latency_ms is None else limit.latency_ms
    begin = seen.duration_s * IN_FLUX
    first = int(np.searchsorted(seen.intended_s, begin))
    latencies, intended = seen.latencies_ms[first:], seen.intended_s[first:] - begin
    duration = seen.duration_s - begin
    blocks = max(int(duration / max(BLOCK_LIMITS * bound / 1000, SHORTEST_BLOCK_S)), 1) if bound < inf else 1
    block = np.clip(intended * (blocks / duration), 0, blocks - 1).astype(np.intp)
    late = latencies > bound
    latency = float(np.percentile(latencies, limit.percentile, method="lower")) if len(latencies) else 0.0
    return Glimpse(
        invocations_per_minute=rate_per_minute,
        duration_s=seen.duration_s,
        sent=len(seen.intended_s),
        requests=tuple(np.bincount(block, minlength=blocks).tolist()),
        late=tuple(np.bincount(block[late], minlength=blocks).tolist()),
        latency_ms=latency if latency < inf else None,
        ceiling_per_minute=_ceiling(intended, latencies, late, duration),
    )


def _ceiling(
    intended_s: "np.ndarray", latencies_ms: "np.ndarray", late: "np.ndarray", duration_s: float
) -> float | None:
    """Returns the answers a minute while a backlog grew, or None where none stood at the end."""
    last = intended_s >= duration_s * (1 - LAST)
    if not last.any() or late[last].mean() < BACKLOG:
        return None
    finished = np.sort((intended_s + latencies_ms / 1000)[late])
    inside = finished[finished <= duration_s]
    if len(inside) < 2 or inside[-1] <= inside[0]:
        return None
    return float((len(inside) - 1) / (inside[-1] - inside[0]) * 60)


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A capacity, in invocations per minute, with its interval of `CONFIDENCE`."""

    rate: float
    low: float
    high: float

    @property
    def deviation(self) -> float:
        """The standard deviation of the rate's logarithm; infinite where an end is not known."""
        return log(self.high / self.low) / (2 * QUANTILE) if self.low > 0 and self.high < inf else inf


def estimate(glimpses: Sequence[Glimpse], limit: Limit) -> Estimate | None:
    """Returns the capacity by the probes near it; None where there is none, or nothing was due in them."""
    assert limit.latency_ms is not None
    told = [each for each in glimpses if sum(each.requests)]
    if not told:
        return None
    edge = _edge(told, limit)
    near = [each for each in told if 1 / NEAR <= each.invocations_per_minute / edge <= NEAR]
    ceilings = [each.ceiling_per_minute for each in told if each.ceiling_per_minute]
    at = rate_at_limit(
        [_counts(each) for each in near],
        limit.allowed,
        CONFIDENCE,
        limit=limit.latency_ms / 60_000,
        saturation=max(ceilings, default=None),
    )
    return Estimate(rate=at.rate, low=at.low, high=at.high)


def _edge(glimpses: Sequence[Glimpse], limit: Limit) -> float:
    """Returns the rate of the probe whose late share is nearest to what the limit allows, in logarithms; of several
    the highest."""

    def off(each: Glimpse) -> tuple[float, float]:
        return abs(log((each.late_share + limit.allowed / 10) / limit.allowed)), -each.invocations_per_minute

    return min(glimpses, key=off).invocations_per_minute


def _counts(each: Glimpse) -> Probe:
    return Probe(
        invocations_per_minute=each.invocations_per_minute,
        duration_s=each.duration_s,
        latency_ms=each.latency_ms,
        late_share=each.late_share,
        requests=each.requests,
        late=each.late,
    )
