"""Every request as one row of numbers: intended send, send and finish, and the status.

In a closed loop a user's next request is intended the moment its last one returned, and its first one when the schedule
says that the user joins. In an open loop a request is intended at its arrival, fixed before the clock starts. The
difference between intended and actual send is the time for which the generator, or a full set of connections, held the
request back.

Rows are added with readings of the run's clock and read as seconds since the start of the run.
"""

from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inference_recommender.capacity.statistics import Bools, Floats
from workloads.files import replacing

CONNECTION_FAILED = 0
"""The status of a request whose connection failed, so that it got no HTTP answer."""
TIMED_OUT = -1
"""The status of a request that had no whole answer within the plan's `request_timeout_s`."""
UNREADABLE = 1
"""The status of a request whose answer of status 200 is no inference response."""
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """One entry per request, in order of finish. Latency is the client's."""

    finished_s: Floats
    """Seconds since the start of the run."""
    latencies_ms: Floats
    """Milliseconds since the actual send."""
    from_intended_ms: Floats
    """Milliseconds since the intended send."""
    succeeded: Bools
    timed_out: Bools
    """Those that failed for want of an answer within the time that a request may take."""

    @property
    def successful_ms(self) -> Floats:
        """The latencies of the successful requests, in milliseconds since the actual send."""
        return self.latencies_ms[self.succeeded]

    @property
    def errors(self) -> int:
        """The number of failed requests."""
        return int(len(self.succeeded) - self.succeeded.sum())


def percentiles(latencies_ms: Floats) -> dict[str, float | None]:
    """Returns p50, p90, p95, p99 and the maximum; None for each where there are no latencies."""
    if not len(latencies_ms):
        return dict.fromkeys([*PERCENTILES, "max"])
    values = np.percentile(latencies_ms, list(PERCENTILES.values()))
    return {
        **{name: float(value) for name, value in zip(PERCENTILES, values, strict=True)},
        "max": float(latencies_ms.max()),
    }


class Records:
    """Append-only columns, in order of finish."""

    def __init__(self) -> None:
        self.started = 0.0
        """The moment the run began, on the run's clock."""
        self.first_error: str | None = None
        """The answer to the first failed request, or that it had none in time."""
        self.unserved_s = 0.0
        """Seconds that connections spent on requests that failed or never returned, and on failing to connect. In a
        closed loop that is time in which there were fewer users than the plan says."""
        self._intended = array("d")
        self._sent = array("d")
        self._finished = array("d")
        self._status = array("h")
        self._user = array("i")
        self._unfinished = array("d")

    def add(self, intended: float, sent: float, finished: float, status: int, user: int) -> None:
        """Appends a request that was answered, or whose connection failed; moments are on the run's clock."""
        self._intended.append(intended)
        self._sent.append(sent)
        self._finished.append(finished)
        self._status.append(status)
        self._user.append(user)

    def add_unfinished(self, intended: float) -> None:
        """Appends a request that was due and had no answer when the run was over, sent or not."""
        self._unfinished.append(intended)

    def __len__(self) -> int:
        return len(self._finished)

    def rows(self, first: int = 0) -> Rows:
        """Returns the rows from number `first` on."""
        intended, sent, finished = (
            np.array(column[first:], dtype=np.float64) for column in (self._intended, self._sent, self._finished)
        )
        return Rows(
            finished_s=finished - self.started,
            latencies_ms=(finished - sent) * 1000,
            from_intended_ms=(finished - intended) * 1000,
            succeeded=(status := np.array(self._status[first:])) == 200,
            timed_out=status == TIMED_OUT,
        )

    def answered(self) -> bool:
        """Returns whether any request had an HTTP answer, of whatever status."""
        return max(self._status, default=CONNECTION_FAILED) > CONNECTION_FAILED

    def unfinished_intended_s(self) -> Floats:
        """Returns when each unfinished request was due, in seconds since the start of the run."""
        return np.array(self._unfinished, dtype=np.float64) - self.started

    def write(self, file: Path, stalls_s: Floats) -> None:
        """Writes all columns; see `write_columns`."""
        write_columns(
            file,
            np.array(self._intended) - self.started,
            np.array(self._sent) - self.started,
            np.array(self._finished) - self.started,
            np.array(self._status),
            np.array(self._user),
            self.unfinished_intended_s(),
            stalls_s,
        )


def write_columns(
    file: Path,
    intended_s: Floats,
    sent_s: Floats,
    finished_s: Floats,
    status: npt.NDArray[np.int16],
    user: npt.NDArray[np.int32],
    unfinished_intended_s: Floats,
    stalls_s: Floats,
) -> None:
    """Writes a numpy archive of plain arrays (read it with allow_pickle=False), in seconds since the run began."""
    with replacing(file) as stream:
        np.savez_compressed(
            stream,
            intended_s=intended_s,
            sent_s=sent_s,
            finished_s=finished_s,
            status=status,
            user=user,
            unfinished_intended_s=unfinished_intended_s,
            stalls_s=stalls_s,
        )
