"""Whether the generator itself limited what it measured: its CPU time and the lateness of its clock. Pure."""

from dataclasses import dataclass

import numpy as np

from inference_recommender.capacity.limit import MAX_CPU_SHARE, MAX_LAG_MS
from inference_recommender.capacity.statistics import Floats

LAGGED = "generator lagged"
"""The beginning of every complaint."""
STALLED = "machine stalled"
"""The beginning of the reason if stalls left too little of a run."""
MAX_STALLED_SHARE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfWatch:
    cpu_share: float
    """CPU time over the run's duration. 1 is a whole core."""
    lag_ms: float
    """90th percentile of the delay of the run's ticks and of an open loop's requests, outside stalls."""
    peak_per_second: int
    """The highest number of answers in a second."""

    @classmethod
    def of(cls, cpu_s: float, wall_s: float, lags_s: Floats, finished_s: Floats) -> "SelfWatch":
        """Returns the watch of a run of `wall_s` seconds that used `cpu_s` seconds of CPU."""
        return cls(
            cpu_share=cpu_s / wall_s if wall_s else 0.0,
            lag_ms=float(np.percentile(lags_s, 90)) * 1000 if len(lags_s) else 0.0,
            peak_per_second=int(np.bincount(finished_s.astype(int)).max()) if len(finished_s) else 0,
        )

    def complaint(self) -> str | None:
        """Returns why the run allows no verdict, or None."""
        if self.cpu_share > MAX_CPU_SHARE:
            return f"{LAGGED}: it used {self.cpu_share:.0%} of its core, so it was the bottleneck"
        if self.lag_ms > MAX_LAG_MS:
            return f"{LAGGED}: its own clock was {self.lag_ms:.0f} ms late"
        return None

    def worst_with(self, other: "SelfWatch") -> "SelfWatch":
        """Returns the watch of two generators that ran together."""
        return SelfWatch(
            cpu_share=max(self.cpu_share, other.cpu_share),
            lag_ms=max(self.lag_ms, other.lag_ms),
            peak_per_second=max(self.peak_per_second, other.peak_per_second),
        )
