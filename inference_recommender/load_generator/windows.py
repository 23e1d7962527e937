"""The run as it goes, window by window: pure numbers from rows of `Records`."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from inference_recommender.capacity.closed_loop import Floats

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """Requests that finished in [start_s, end_s). Latencies in ms, of the successful ones; None where there is none."""

    start_s: float
    end_s: float
    started_at: float
    """Of the window, in seconds since the epoch."""
    users: int
    invocations: int
    errors: int
    latency_ms: dict[str, float | None]
    histogram: tuple[tuple[float, int], ...]
    """(latency in ms, count): `Histogram.pairs`."""

    def as_event(self) -> dict[str, Any]:
        return {"event": "window", **asdict(self)}


def percentiles(latencies_ms: Floats) -> dict[str, float | None]:
    if not len(latencies_ms):
        return dict.fromkeys([*PERCENTILES, "max"])
    values = np.percentile(latencies_ms, list(PERCENTILES.values()))
    return {
        **{name: float(value) for name, value in zip(PERCENTILES, values, strict=True)},
        "max": float(latencies_ms.max()),
    }
