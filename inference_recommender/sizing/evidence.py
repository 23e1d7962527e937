"""What a fleet is sized from: measurements, and what is known of how they came about."""

from dataclasses import dataclass

from inference_recommender.measurement import Measurement
from workloads import Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    measured: tuple[Measurement, ...]
    region: str | None = None
    """Whose prices the measurements may hold."""
    percentile: str | None = None
    """Of the measurements' model latency; None where nothing says it."""
    job_limit_per_minute: int | None = None
    workload: Workload | None = None
    """Where our own folder keeps it."""
    cautions: tuple[str, ...] = ()
    """What a person should know before believing the result."""
