"""The run as it goes, window by window: pure numbers from rows of `Records`."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from inference_recommender.capacity import Floats

BIN_WIDTH = 0.02
"""Histogram bins are this wide on a natural-log scale: a latency read back is within 1 % of what was measured."""

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


def histogram(latencies_ms: Floats) -> tuple[tuple[float, int], ...]:
    """(latency in ms, count) for each occupied bin, ascending."""
    bins, counts = np.unique(np.round(np.log(np.maximum(latencies_ms, 1e-3)) / BIN_WIDTH), return_counts=True)
    return tuple((round(float(np.exp(b * BIN_WIDTH)), 4), int(n)) for b, n in zip(bins, counts, strict=True))
