"""The latency limit of a measurement, the confidence of its statistics, and the limits of the load generator itself."""

from dataclasses import dataclass

MARGIN = 0.10
"""A service whose percentile is over the limit by this share passes in at most 5 % of runs."""
CONFIDENCE = 0.95
MAX_CPU_SHARE = 0.9
"""CPU time of the load generator as a share of a core. Above it, the generator is the bottleneck."""
MAX_LAG_MS = 50.0
"""The generator's 90th percentile of the delay of its ticks and of an open loop's requests, outside stalls."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """The `percentile` (99.0 for P99) of the latency must not exceed `latency_ms`. None sets no limit."""

    percentile: float
    latency_ms: float | None

    @property
    def name(self) -> str:
        """The percentile as in workload.toml: P99."""
        return f"P{self.percentile:g}"

    @property
    def allowed(self) -> float:
        """The share of requests that may be late: 0.01 for P99."""
        return 1 - self.percentile / 100

    @property
    def bound_ms(self) -> float:
        """The latency limit, or infinity."""
        return float("inf") if self.latency_ms is None else self.latency_ms
