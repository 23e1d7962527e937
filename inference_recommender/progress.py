"""How a long run reports its progress. The CLI draws it; the library alone is silent."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressUpdate:
    """A job's state now. The figures are those of the latest point of the running test, None before its first."""

    job_name: str
    status: str
    elapsed_s: float
    expected_s: float
    number: int = 1
    """The job's place among the run's jobs, from 1."""
    jobs: int = 1
    """How many jobs the run has."""
    users: float | None = None
    invocations_per_minute: float | None = None
    latency_ms: float | None = None
    percentile: str = "p99"
    """Belongs to that latency: the objective's, where it is among those that are known."""


class Progress(Protocol):
    def update(self, update: ProgressUpdate) -> None: ...

    def say(self, text: str) -> None:
        """Tells the user, in a sentence, of something unusual that does not end the run."""


class Silent:
    """The null progress."""

    def update(self, update: ProgressUpdate) -> None:
        """No-op."""

    def say(self, text: str) -> None:
        """No-op."""
