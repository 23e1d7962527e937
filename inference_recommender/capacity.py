"""The highest rate a run sustained within a latency limit. Pure: arrays in, one value out.

A rate counts as sustained when it held over `INTERVAL_S` on end. Intervals slide by a second; one with too few
requests for its percentile, or with more than `MAX_ERROR_SHARE` failed, is no evidence. Latencies of neighbouring
requests are dependent (batching, queues) and the best of many intervals is a little lucky: this is an estimate
without a confidence interval.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

INTERVAL_S = 10.0
MAX_ERROR_SHARE = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """`percentile` (99.0) of the latency must not exceed `latency_ms`; None asks for no limit."""

    percentile: float
    latency_ms: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    start_s: float
    end_s: float
    invocations_per_minute: float
    latency_ms: float
    """At the limit's percentile."""
    within_limit: bool
    interval: tuple[float, float] | None = None
    """95 % confidence interval of the rate, in invocations per minute; None where the run allows none."""
    warm_up_s: float | None = None
    """How long the service warmed up, excluded from all of the above; None where the load changed too soon to tell."""


def samples_needed(percentile: float) -> int:
    """The fewest samples in which a percentile is more than a guess at the maximum: two above it expected."""
    return int(np.ceil(2 / (1 - percentile / 100)))


def capacity(finished_s: Floats, latencies_ms: Floats, succeeded: Bools, limit: Limit, end_s: float) -> Capacity | None:
    """The interval of highest rate within the limit; where none is, the one of lowest latency; None without evidence.

    The three arrays have one entry per request, in order of finish; requests that finish after `end_s` are ignored.
    """
    starts = np.arange(0.0, max(end_s - INTERVAL_S, 0.0) + 1e-9, 1.0)
    found = [
        interval
        for start in starts
        if (interval := _interval(finished_s, latencies_ms, succeeded, limit, start, min(start + INTERVAL_S, end_s)))
    ]
    within = [interval for interval in found if interval.within_limit]
    if within:
        return max(within, key=lambda interval: interval.invocations_per_minute)
    return min(found, key=lambda interval: interval.latency_ms, default=None)


def _interval(
    finished_s: Floats, latencies_ms: Floats, succeeded: Bools, limit: Limit, start: float, end: float
) -> Capacity | None:
    first, last = np.searchsorted(finished_s, [start, end])
    latencies = latencies_ms[first:last][succeeded[first:last]]
    if len(latencies) < samples_needed(limit.percentile):
        return None
    requests = int(last - first)
    if requests - len(latencies) > requests * MAX_ERROR_SHARE:
        return None
    latency = float(np.percentile(latencies, limit.percentile))
    return Capacity(
        start_s=float(start),
        end_s=float(end),
        invocations_per_minute=len(latencies) / (end - start) * 60,
        latency_ms=latency,
        within_limit=limit.latency_ms is None or latency <= limit.latency_ms,
    )
