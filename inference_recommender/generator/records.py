"""Every request as one row of numbers: intended send, send and finish in seconds since the start, and the status.

In a closed loop a user's next request is intended the moment its last one returned; its first one when the schedule
says that the user joins. The difference between intended and actual send is what the generator itself was late by.
"""

from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inference_recommender.capacity import Bools, Floats

CONNECTION_FAILED = 0
"""Status of a request that got no HTTP answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """One entry per request, in order of finish. Latency is the client's, from actual send."""

    finished_s: Floats
    latencies_ms: Floats
    succeeded: Bools

    @property
    def successful_ms(self) -> Floats:
        return self.latencies_ms[self.succeeded]

    @property
    def errors(self) -> int:
        return int(len(self.succeeded) - self.succeeded.sum())


class Records:
    """Append-only columns. Rows are in order of finish."""

    def __init__(self) -> None:
        self._intended = array("d")
        self._sent = array("d")
        self._finished = array("d")
        self._status = array("h")
        self._user = array("i")
        self.first_error: str | None = None
        """What the first failed request was answered with."""

    def add(self, intended: float, sent: float, finished: float, status: int, user: int) -> None:
        self._intended.append(intended)
        self._sent.append(sent)
        self._finished.append(finished)
        self._status.append(status)
        self._user.append(user)

    def __len__(self) -> int:
        return len(self._finished)

    def rows(self, first: int = 0) -> "Rows":
        """The rows from number `first` on."""
        sent, finished = (np.array(column[first:], dtype=np.float64) for column in (self._sent, self._finished))
        return Rows(
            finished_s=finished,
            latencies_ms=(finished - sent) * 1000,
            succeeded=np.array(self._status[first:]) == 200,
        )

    def write(self, file: Path) -> None:
        """A numpy archive of plain arrays (read it with allow_pickle=False)."""
        np.savez_compressed(
            file,
            intended_s=np.array(self._intended),
            sent_s=np.array(self._sent),
            finished_s=np.array(self._finished),
            status=np.array(self._status),
            user=np.array(self._user),
        )
