"""The counts of a probe, and the capacity of one configuration from its probes. Pure.

A probe sends Poisson arrivals at one rate, and counts the requests over the limit. `estimate` returns the rate at which
the percentile's share is late. Far above the capacity the backlog grows until the end of the probe. The rate of
answers is then the maximum that the server can answer, whatever the limit.
"""

from collections.abc import Sequence
from math import log

import numpy as np

from inference_recommender.capacity.probe import IN_FLUX, Probe, ProbeRecords
from inference_recommender.capacity.rate_at_limit import RateAtLimit, rate_at_limit
from inference_recommender.capacity.statistics import CONFIDENCE, Limit

BLOCK_LIMITS, SHORTEST_BLOCK_S = 10.0, 0.25
"""Length of a block in multiples of the limit, and its minimum in seconds: requests of two blocks hardly meet."""
LAST, BACKLOG = 0.25, 0.8
"""A server is overloaded if at least the share `BACKLOG` of the requests in the `LAST` part of a probe is late."""
NEAR = 2.0
"""The estimate uses probes within this factor of the one nearest to the limit."""


class ProbeCounts(Probe):
    """The counts of a probe, without its first tenth, in shorter blocks of time than those of a capacity search."""

    sent: int
    """Requests that were due, with those of the first tenth and of a warm-up."""
    ceiling_per_minute: float | None
    """Answers per minute of a server that was overloaded to the end. None for other probes."""


def counted(rate_per_minute: float, records: ProbeRecords, limit: Limit) -> ProbeCounts:
    """Counts the requests of a probe."""
    block_s, sent = max(BLOCK_LIMITS * limit.bound_ms / 1000, SHORTEST_BLOCK_S), len(records.intended_s)
    ceiling = _ceiling(records, limit.bound_ms)
    return ProbeCounts.of(rate_per_minute, records, limit, block_s, sent=sent, ceiling_per_minute=ceiling)


def _ceiling(records: ProbeRecords, bound_ms: float) -> float | None:
    """Returns the answers per minute while a backlog grew, or None if there was none at the end."""
    begin = records.duration_s * IN_FLUX
    first, duration_s = int(np.searchsorted(records.intended_s, begin)), records.duration_s - begin
    latencies_ms, intended_s = records.latencies_ms[first:], records.intended_s[first:] - begin
    late, last = latencies_ms > bound_ms, intended_s >= duration_s * (1 - LAST)
    if not last.any() or late[last].mean() < BACKLOG:
        return None
    finished = np.sort((intended_s + latencies_ms / 1000)[late])
    inside = finished[finished <= duration_s]
    if len(inside) < 2 or inside[-1] <= inside[0]:
        return None
    return float((len(inside) - 1) / (inside[-1] - inside[0]) * 60)


def estimate(probes: Sequence[ProbeCounts], limit: Limit) -> RateAtLimit | None:
    """Returns the capacity in invocations per minute by the probes near it, or None if no request was due."""
    assert limit.latency_ms is not None
    counted = [probe for probe in probes if sum(probe.requests)]
    if not counted:
        return None

    def distance(probe: ProbeCounts) -> tuple[float, float]:
        return abs(log((probe.late_share + limit.allowed / 10) / limit.allowed)), -probe.invocations_per_minute

    # The rate of the probe whose late share is nearest to the allowed one; of several the highest.
    edge = min(counted, key=distance).invocations_per_minute
    return rate_at_limit(
        [probe for probe in counted if 1 / NEAR <= probe.invocations_per_minute / edge <= NEAR],
        limit.allowed,
        CONFIDENCE,
        limit=limit.latency_ms / 60_000,
        saturation=max((probe.ceiling_per_minute for probe in counted if probe.ceiling_per_minute), default=None),
    )
