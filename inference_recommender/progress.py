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
    number: int = 1
    """Of this job among the run's."""
    jobs: int = 1
    users: float | None = None
    invocations_per_minute: float | None = None
    p99_ms: float | None = None


class Progress(Protocol):
    def pulse(self, pulse: Pulse) -> None: ...

    def say(self, text: str) -> None:
        """A sentence for whoever watches: something is not as usual, and the run goes on."""


class Silent:
    def pulse(self, pulse: Pulse) -> None:
        """Nobody watches."""

    def say(self, text: str) -> None:
        """Nobody listens."""
