"""When a run ends before its traffic does: the three stopping conditions of the API, on trailing intervals. Pure.

The service looks at whole minutes; a run here may last one minute in all, so these look at the last `INTERVAL_S`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inference_recommender.capacity.closed_loop import Floats, samples_needed
from inference_recommender.load_generator.plan import StoppingConditions

FLAT_GROWTH = 0.02
"""More users with less growth than this, twice in a row, is flat."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """Users on average, successful invocations per minute, their latencies in ms."""

    users: float
    invocations_per_minute: float
    latencies_ms: Floats


def reason_to_stop(conditions: StoppingConditions, intervals: Sequence[Interval]) -> str | None:
    """The condition that `intervals` (disjoint, of equal length, the latest last) meet, or None."""
    if not intervals:
        return None
    if conditions.max_invocations and intervals[-1].invocations_per_minute >= conditions.max_invocations:
        return "max invocations"
    if _too_slow(conditions, intervals[-1]):
        return "model latency threshold"
    if conditions.flat_invocations == "Stop" and _flat(intervals):
        return "flat invocations"
    return None


def _too_slow(conditions: StoppingConditions, now: Interval) -> bool:
    limit = conditions.latency
    if limit is None or len(now.latencies_ms) < samples_needed(limit.rank):
        return False
    return bool(np.percentile(now.latencies_ms, limit.rank) > limit.value_in_milliseconds)


def _flat(intervals: Sequence[Interval]) -> bool:
    if len(intervals) < 3:
        return False
    pairs = zip(intervals[-3:-1], intervals[-2:], strict=True)
    return all(
        later.users > earlier.users
        and later.invocations_per_minute < earlier.invocations_per_minute * (1 + FLAT_GROWTH)
        for earlier, later in pairs
    )
