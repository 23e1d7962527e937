"""How a long run reports its progress. The CLI draws it; the library alone is silent."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressUpdate:
    """A job's state now."""

    job_name: str
    status: str
    elapsed_s: float
    expected_s: float
    number: int = 1
    """The job's place among the run's jobs, from 1."""
    jobs: int = 1
    """The number of the run's jobs."""


class Progress:
    """Shows nothing. Subclasses show what they receive."""

    def update(self, update: ProgressUpdate) -> None:
        """Receives a job's state."""

    def say(self, text: str) -> None:
        """Reports something unusual that does not end the run, as a sentence."""
