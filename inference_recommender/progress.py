"""How a long run reports its progress. The CLI draws it; a library is silent or calls back with sentences."""

import time
from collections.abc import Callable
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

    @property
    def place(self) -> str:
        return "" if self.jobs == 1 else f"{self.number} of {self.jobs}"

    @property
    def title(self) -> str:
        return f"{self.job_name} ({self.place})" if self.place else self.job_name


class Progress:
    """Reports each new status of a job as a sentence. Subclasses show more. Without `report` it is silent."""

    def __init__(self, report: Callable[[str], None] = lambda sentence: None) -> None:
        self._report = report
        self._last: str | None = None

    def update(self, update: ProgressUpdate) -> None:
        """Receives a job's state."""
        if (sentence := f"{update.title}: {update.status}") != self._last:
            self._last = sentence
            self._report(sentence)

    def timed(self, name: str, expected_s: float) -> Callable[[str], None]:
        """Returns a function that reports a status, with the seconds since now."""
        began = time.monotonic()

        def report(status: str) -> None:
            elapsed_s = time.monotonic() - began
            self.update(ProgressUpdate(job_name=name, status=status, elapsed_s=elapsed_s, expected_s=expected_s))

        return report

    def say(self, text: str) -> None:
        """Reports something unusual that does not end the run, as a sentence."""
        self._report(text)
