"""Whether the generator itself was in the way of what it measured. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inference_recommender.load_generator.calibration import Calibration
from inference_recommender.load_generator.plan import ModelLatencyThreshold
from inference_recommender.load_generator.records import Rows

MAX_CPU_SHARE = 0.9
MAX_LAG_MS = 50.0
"""Of its own ticks and of the requests of an open loop, at their 90th percentile."""
MAX_RATE_SHARE = 0.8
"""Of the highest rate by its calibration: above, queues of its own begin to show."""
MAX_FLOOR_SHARE = 0.5
"""Of the latency limit that the generator's own latency may make up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfWatch:
    cpu_share: float
    """Of one core, over the run."""
    lag_ms: float
    peak_per_second: int
    """The most answers in a second."""
    calibration: Calibration | None

    @classmethod
    def of(
        cls, cpu_s: float, wall_s: float, lags_s: Sequence[float], rows: Rows, calibration: Calibration | None
    ) -> "SelfWatch":
        return cls(
            cpu_share=cpu_s / wall_s,
            lag_ms=float(np.percentile(lags_s, 90)) * 1000 if lags_s else 0.0,
            peak_per_second=int(np.bincount(rows.finished_s.astype(int)).max()) if len(rows.finished_s) else 0,
            calibration=calibration,
        )

    def complaint(self, limit: ModelLatencyThreshold | None) -> str | None:
        """Why no verdict may be drawn, or None. `limit`: what latencies are to be compared with."""
        if self.cpu_share > MAX_CPU_SHARE:
            return f"generator lagged: it used {self.cpu_share:.0%} of its core, so it was the bottleneck"
        if self.lag_ms > MAX_LAG_MS:
            return f"generator lagged: its own clock came {self.lag_ms:.0f} ms late"
        if self.calibration is None:
            return None
        if self.peak_per_second > self.calibration.highest_per_second * MAX_RATE_SHARE:
            return (
                f"generator lagged: it had {self.peak_per_second:,} answers in a second, and against a server that "
                f"costs nothing it can have {self.calibration.highest_per_second:,.0f}; use more generators"
            )
        floor_ms = self.calibration.latency_floor_ms.get(limit.percentile.lower()) if limit else None
        if limit and floor_ms and floor_ms > limit.value_in_milliseconds * MAX_FLOOR_SHARE:
            return (
                f"generator lagged: {floor_ms:.1f} ms of {limit.percentile} is its own latency, measured against a "
                f"server that costs nothing; the limit is {limit.value_in_milliseconds} ms"
            )
        return None

    def worst_with(self, other: "SelfWatch") -> "SelfWatch":
        """Of two generators at once. Each has judged itself by its own calibration: together they have none."""
        return SelfWatch(
            cpu_share=max(self.cpu_share, other.cpu_share),
            lag_ms=max(self.lag_ms, other.lag_ms),
            peak_per_second=max(self.peak_per_second, other.peak_per_second),
            calibration=None,
        )
