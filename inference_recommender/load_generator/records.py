"""The requests of a run: when each was due, sent and answered, its status and its payload.

In a closed loop a user's next request is due when its last one returned, in an open loop at its arrival. Its send may
be later if the generator, or a full set of connections, held it back.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from inference_recommender.capacity.statistics import Bools, Floats
from inference_recommender.load_generator.self_watch import NO_STALLS, merge_stalls
from workloads.files import replacing

CONNECTION_FAILED = 0
"""Status of a request without an HTTP answer."""
TIMED_OUT = -1
"""Status of a request without a complete answer within the plan's `request_timeout_s`."""
UNREADABLE = 1
"""Status of a request whose answer of status 200 is not an inference response."""
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "max": 100.0}
COLUMNS = ("intended_s", "sent_s", "finished_s", "status", "payload")
BIN_WIDTH = 0.01
"""Width of a histogram's bin in the logarithm, so that a latency is at most 0.5 % off (DDSketch: VLDB 2019)."""
LOWEST_MS = 1e-3
Percentiles = dict[str, float | None]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SentRequests:
    """One entry per request, in order of finish. Times are seconds since the start of the run."""

    intended_s: Floats
    sent_s: Floats
    finished_s: Floats
    status: npt.NDArray[np.int16]
    payload: npt.NDArray[np.int32]
    """Place of the body among the run's payloads."""
    unfinished_intended_s: Floats = field(default_factory=lambda: np.zeros(0))
    """When each request was due that had no answer at the end of the run, sent or not."""
    stalls_s: Floats = field(default_factory=lambda: NO_STALLS)
    """Stalls of this machine: shape (k, 2), start and end."""

    @property
    def latencies_ms(self) -> Floats:
        """The client's latency in milliseconds since the actual send."""
        return (self.finished_s - self.sent_s) * 1000

    @property
    def from_intended_ms(self) -> Floats:
        """The same since the intended send."""
        return (self.finished_s - self.intended_s) * 1000

    @property
    def succeeded(self) -> Bools:
        return np.equal(self.status, 200)

    @property
    def successful_ms(self) -> Floats:
        """Latencies of the successful requests."""
        return self.latencies_ms[self.succeeded]

    @property
    def errors(self) -> int:
        """The number of failed requests, without the unfinished ones."""
        return int((self.status != 200).sum())

    def __len__(self) -> int:
        return len(self.finished_s)

    def shifted(self, seconds: float) -> Self:
        """Returns the requests of a run that started `seconds` earlier."""
        changes = {each.name: getattr(self, each.name) + seconds for each in fields(self) if each.name.endswith("_s")}
        return replace(self, **changes)

    def between(self, start_s: float, end_s: float) -> Self:
        """Returns the requests that finished in [start_s, end_s), and the unfinished ones due before `end_s`."""
        chosen = slice(*np.searchsorted(self.finished_s, [start_s, end_s]))
        columns = {name: getattr(self, name)[chosen] for name in COLUMNS}
        due = self.unfinished_intended_s
        return replace(self, **columns, unfinished_intended_s=due[due < end_s])

    def write(self, file: Path) -> None:
        """Writes a numpy archive of plain arrays. Read it with allow_pickle=False."""
        with replacing(file) as stream:
            np.savez_compressed(stream, **{each.name: getattr(self, each.name) for each in fields(self)})

    @classmethod
    def read(cls, file: Path) -> Self:
        with np.load(file, allow_pickle=False) as columns:
            return cls(**{each.name: columns[each.name] for each in fields(cls)})

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Returns the requests of several generators with the same start."""
        joined = {each.name: np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)}
        order = np.argsort(joined["finished_s"], kind="stable")
        columns = {name: joined[name][order] for name in COLUMNS}
        stalls = merge_stalls([part.stalls_s for part in parts])
        return cls(**columns, unfinished_intended_s=np.sort(joined["unfinished_intended_s"]), stalls_s=stalls)


def percentiles(latencies_ms: Floats) -> Percentiles:
    """Returns p50, p90, p95, p99 and the maximum, or None for each without latencies."""
    if not len(latencies_ms):
        return dict.fromkeys(PERCENTILES)
    values = np.percentile(latencies_ms, list(PERCENTILES.values()))
    return {name: float(value) for name, value in zip(PERCENTILES, values, strict=True)}


def histogram(latencies_ms: Floats) -> tuple[tuple[float, int], ...]:
    """Returns (latency in ms, count) for each occupied bin, ascending."""
    bins, counts = np.unique(_bins(latencies_ms), return_counts=True)
    pairs = zip(bins.tolist(), counts.tolist(), strict=True)
    return tuple((round(math.exp(number * BIN_WIDTH), 6), count) for number, count in pairs)


def binned_percentile(latencies_ms: Floats, percentile: float) -> float | None:
    """Returns the bin of the latency that `percentile` % do not exceed, by nearest rank; None without latencies."""
    if not len(latencies_ms):
        return None
    place = max(math.ceil(len(latencies_ms) * percentile / 100 - 1e-9), 1) - 1
    return math.exp(float(_bins(np.partition(latencies_ms, place)[place])) * BIN_WIDTH)


def _bins(latencies_ms: Floats) -> Floats:
    bins: Floats = np.round(np.log(np.maximum(latencies_ms, LOWEST_MS)) / BIN_WIDTH)
    return bins


class RequestLog:
    """Collects the requests of a run as they finish, by readings of the run's clock."""

    def __init__(self) -> None:
        self.started = 0.0
        """The clock's reading at the start of the run."""
        self.first_error: str | None = None
        self.unserved_s = 0.0
        """Seconds that connections spent on requests without success and on failed connects."""
        self._intended, self._sent, self._finished = array("d"), array("d"), array("d")
        self._status, self._payload, self._unfinished = array("h"), array("i"), array("d")

    def add(self, intended: float, sent: float, finished: float, status: int, payload: int) -> None:
        """Appends a request that was answered, or whose connection failed."""
        self._intended.append(intended)
        self._sent.append(sent)
        self._finished.append(finished)
        self._status.append(status)
        self._payload.append(payload)

    def add_unfinished(self, intended: float) -> None:
        """Appends a request that was due and had no answer at the end of the run."""
        self._unfinished.append(intended)

    def __len__(self) -> int:
        return len(self._finished)

    def requests(self, first: int = 0, stalls_s: Floats = NO_STALLS) -> SentRequests:
        """Returns the requests from number `first` on."""
        return SentRequests(
            intended_s=np.array(self._intended[first:]) - self.started,
            sent_s=np.array(self._sent[first:]) - self.started,
            finished_s=np.array(self._finished[first:]) - self.started,
            status=np.array(self._status[first:], dtype=np.int16),
            payload=np.array(self._payload[first:], dtype=np.int32),
            unfinished_intended_s=np.array(self._unfinished) - self.started,
            stalls_s=stalls_s,
        )

    def answered(self) -> bool:
        """Returns whether any request had an HTTP answer of any status."""
        return max(self._status, default=CONNECTION_FAILED) > CONNECTION_FAILED
