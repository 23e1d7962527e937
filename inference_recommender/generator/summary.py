"""What a run comes to, and whether it may be believed."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from inference_recommender.capacity import MAX_ERROR_SHARE, Capacity, Limit, capacity, samples_needed
from inference_recommender.generator.plan import StoppingConditions
from inference_recommender.generator.records import Rows
from inference_recommender.generator.windows import percentiles

MAX_CPU_SHARE = 0.9
MAX_LAG_MS = 50.0
"""Of the generator's own ticks, at their 90th percentile."""

INVALID_REASONS = ("generator lagged", "too many errors", "too few samples")
"""How the reason of a run begins from which no verdict may be drawn."""

DEFAULT_PERCENTILE = "P95"
"""Reported when a job sets no latency threshold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfWatch:
    cpu_share: float
    """Of one core, over the run."""
    lag_ms: float

    @classmethod
    def of(cls, cpu_s: float, wall_s: float, lags_s: Sequence[float]) -> "SelfWatch":
        lag_ms = float(np.percentile(lags_s, 90)) * 1000 if lags_s else 0.0
        return cls(cpu_share=cpu_s / wall_s, lag_ms=lag_ms)

    def complaint(self) -> str | None:
        if self.cpu_share > MAX_CPU_SHARE:
            return f"generator lagged: it used {self.cpu_share:.0%} of its core, so it was the bottleneck"
        if self.lag_ms > MAX_LAG_MS:
            return f"generator lagged: its own clock came {self.lag_ms:.0f} ms late"
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    max_invocations_per_minute: float | None
    model_latency_ms: float | None
    percentile: str
    percentiles_ms: dict[str, float | None]
    """In the interval of that rate."""
    interval_s: tuple[float, float] | None
    invocations: int
    errors: int
    first_error: str | None
    generator: SelfWatch
    reason: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def summarise(
    rows: Rows, conditions: StoppingConditions, end_s: float, watch: SelfWatch, reason: str, first_error: str | None
) -> Summary:
    limit = conditions.latency
    percentile = limit.percentile if limit else DEFAULT_PERCENTILE
    best = capacity(
        rows.finished_s,
        rows.latencies_ms,
        rows.succeeded,
        Limit(percentile=float(percentile[1:]), latency_ms=limit.value_in_milliseconds if limit else None),
        end_s,
    )
    return Summary(
        max_invocations_per_minute=best.invocations_per_minute if best else None,
        model_latency_ms=best.latency_ms if best else None,
        percentile=percentile,
        percentiles_ms=percentiles(_within(rows, best)),
        interval_s=(best.start_s, best.end_s) if best else None,
        invocations=len(rows.finished_s),
        errors=rows.errors,
        first_error=first_error,
        generator=watch,
        reason=reason,
    )


def why_invalid(summary: Summary) -> str | None:
    """Why no verdict may be drawn from the run, or None."""
    if complaint := summary.generator.complaint():
        return complaint
    if summary.errors > summary.invocations * MAX_ERROR_SHARE:
        return (
            f"too many errors: {summary.errors} of {summary.invocations} requests failed; "
            f"the first: {summary.first_error or 'the connection was lost'}"
        )
    if summary.max_invocations_per_minute is None:
        needed = samples_needed(float(summary.percentile[1:]))
        return (
            f"too few samples: {summary.percentile} needs at least {needed} requests within 10 s; "
            f"the run had {summary.invocations} in all"
        )
    return None


def _within(rows: Rows, best: Capacity | None) -> "np.typing.NDArray[np.float64]":
    if best is None:
        return rows.successful_ms
    first, last = np.searchsorted(rows.finished_s, [best.start_s, best.end_s])
    return rows.latencies_ms[first:last][rows.succeeded[first:last]]
