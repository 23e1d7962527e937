"""Latency histograms with logarithmic bins. Pure.

Bin b holds the latencies in [exp((b - ½)·w), exp((b + ½)·w)) ms with w = `BIN_WIDTH`. So a latency is at most
`RELATIVE_ERROR` (about 0.5 %) off, and so is a percentile (nearest rank). The scheme is that of DDSketch (Masson, Rim,
Lee, VLDB 2019) without a bound on its bins. Latencies below `LOWEST_MS` count as `LOWEST_MS`.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inference_recommender.capacity.statistics import Floats

Bins = npt.NDArray[np.int32]

BIN_WIDTH = 0.01
RELATIVE_ERROR = math.exp(BIN_WIDTH / 2) - 1
LOWEST_MS = 1e-3


def bins_of(latencies_ms: Floats) -> Bins:
    """Returns the bin number of each latency."""
    return np.round(np.log(np.maximum(latencies_ms, LOWEST_MS)) / BIN_WIDTH).astype(np.int32)


def latencies_of(bins: Bins) -> Floats:
    """Returns the latency in ms that each bin stands for."""
    latencies_ms: Floats = np.exp(bins * BIN_WIDTH)
    return latencies_ms


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many latencies each bin holds."""

    counts: tuple[tuple[int, int], ...] = ()
    """(bin number, count) for each occupied bin, ascending."""

    @classmethod
    def of(cls, latencies_ms: Floats) -> "Histogram":
        """Counts `latencies_ms`."""
        bins, counts = np.unique(bins_of(latencies_ms), return_counts=True)
        return cls(tuple(zip(bins.tolist(), counts.tolist(), strict=True)))

    def __len__(self) -> int:
        return sum(count for _, count in self.counts)

    def percentile(self, percentile: float) -> float | None:
        """Returns the latency in ms that `percentile` % do not exceed, by nearest rank; None for an empty histogram."""
        rank = max(math.ceil(len(self) * percentile / 100 - 1e-9), 1)
        seen = 0
        for number, count in self.counts:
            seen += count
            if seen >= rank:
                return math.exp(number * BIN_WIDTH)
        return None

    def pairs(self) -> tuple[tuple[float, int], ...]:
        """Returns (latency in ms, count) for each occupied bin, ascending."""
        return tuple((round(math.exp(number * BIN_WIDTH), 6), count) for number, count in self.counts)
