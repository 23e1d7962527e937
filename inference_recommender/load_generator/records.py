"""Every request as one row of numbers: intended send, send and finish, and the status.

In a closed loop a user's next request is intended the moment its last one returned; its first one when the schedule
says that the user joins. In an open loop it is intended at its arrival, fixed before the clock starts. The difference
between intended and actual send is what the generator, or a full set of connections, held the request back by.

Rows are added with readings of `time.perf_counter` and read as seconds since the start of the run.
"""

from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inference_recommender.capacity.closed_loop import Bools, Floats

CONNECTION_FAILED = 0
"""Status of a request that got no HTTP answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """One entry per request, in order of finish. Latency is the client's."""

    finished_s: Floats
    latencies_ms: Floats
    """From actual send."""
    from_intended_ms: Floats
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
        self.started = 0.0
        """When the run began, on the clock of the rows."""
        self._intended = array("d")
        self._sent = array("d")
        self._finished = array("d")
        self._status = array("h")
        self._user = array("i")
        self._unfinished = array("d")
        self.first_error: str | None = None
        """What the first failed request was answered with."""

    def add(self, intended: float, sent: float, finished: float, status: int, user: int) -> None:
        self._intended.append(intended)
        self._sent.append(sent)
        self._finished.append(finished)
        self._status.append(status)
        self._user.append(user)

    def add_unfinished(self, intended: float) -> None:
        """A request that was due and had no answer when the run was over: sent or not, its latency is unknown."""
        self._unfinished.append(intended)

    def __len__(self) -> int:
        return len(self._finished)

    def rows(self, first: int = 0) -> "Rows":
        """The rows from number `first` on."""
        intended, sent, finished = (
            np.array(column[first:], dtype=np.float64) for column in (self._intended, self._sent, self._finished)
        )
        return Rows(
            finished_s=finished - self.started,
            latencies_ms=(finished - sent) * 1000,
            from_intended_ms=(finished - intended) * 1000,
            succeeded=np.array(self._status[first:]) == 200,
        )

    def unfinished_intended_s(self) -> Floats:
        return np.array(self._unfinished, dtype=np.float64) - self.started

    def write(self, file: Path) -> None:
        save(
            file,
            np.array(self._intended) - self.started,
            np.array(self._sent) - self.started,
            np.array(self._finished) - self.started,
            np.array(self._status),
            np.array(self._user),
            self.unfinished_intended_s(),
        )


def save(
    file: Path,
    intended_s: Floats,
    sent_s: Floats,
    finished_s: Floats,
    status: "np.typing.NDArray[np.int16]",
    user: "np.typing.NDArray[np.int32]",
    unfinished_intended_s: Floats,
) -> None:
    """A numpy archive of plain arrays (read it with allow_pickle=False), in seconds since the start of the run."""
    np.savez_compressed(
        file,
        intended_s=intended_s,
        sent_s=sent_s,
        finished_s=finished_s,
        status=status,
        user=user,
        unfinished_intended_s=unfinished_intended_s,
    )
