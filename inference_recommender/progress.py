"""What a waiting job tells whoever watches. The CLI draws it; the library by itself is silent."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class Pulse:
    """The job at this moment. Rates and latencies are of the latest point of the test under way, None before one."""

    job_name: str
    status: str
    elapsed_s: float
    expected_s: float
    users: float | None = None
    invocations_per_minute: float | None = None
    p99_ms: float | None = None


class Progress(Protocol):
    def pulse(self, pulse: Pulse) -> None: ...


class Silent:
    def pulse(self, pulse: Pulse) -> None:
        """Nobody watches."""
