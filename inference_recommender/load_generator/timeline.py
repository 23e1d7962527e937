"""A run's requests counted by second and latency bin: small enough to send, made to be merged. Pure but for its file.

A row says how many requests finished in a second of the common clock (whole seconds since the epoch) with these bins of
latency (`capacity.histogram`), from actual and from intended send. Merging adds the counts of equal rows, so it is
exact: the timeline of several generators is that of all their requests, whatever the order of merging.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inference_recommender.capacity.histogram import bins_of, latencies_of
from inference_recommender.capacity.statistics import Floats
from inference_recommender.load_generator.records import Rows
from inference_recommender.load_generator.stalls import NO_STALLS, merge_stalls
from workloads.files import replacing

Integers = npt.NDArray[np.int64]
SPREAD_SEED = 1
SUCCEEDED, TIMED_OUT, OUTCOME_BITS = 1, 2, 2
"""Outcomes of a request in the table; 0 is every other failure."""
BIN_BITS = 13
"""Bits of a packed bin number: enough for latencies from a microsecond to weeks."""


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    table: Integers
    """Shape (cells, 5), ascending: second, outcome, bin from send, bin from intended send, count."""
    unfinished_at: Floats
    """When each unfinished request was due, ascending, in seconds since the epoch."""
    stalls_at: Floats
    """The stalls of the machines that sent: shape (k, 2), start and end in seconds since the epoch, ascending."""

    @classmethod
    def of(
        cls, rows: Rows, unfinished_intended_s: Floats, started_at: float, stalls_s: Floats = NO_STALLS
    ) -> "Timeline":
        """Counts `rows`, whose run began at `started_at` seconds since the epoch."""
        cells = np.column_stack(
            [
                np.floor(started_at + rows.finished_s).astype(np.int64),
                np.where(rows.timed_out, TIMED_OUT, rows.succeeded),
                bins_of(rows.latencies_ms),
                bins_of(rows.from_intended_ms),
                np.ones(len(rows.finished_s), dtype=np.int64),
            ]
        )
        return cls(_added(cells), np.sort(unfinished_intended_s + started_at), stalls_s + started_at)

    @classmethod
    def read(cls, file: Path) -> "Timeline":
        with np.load(file, allow_pickle=False) as archive:
            return cls(archive["table"], archive["unfinished_at"], archive["stalls_at"])

    def write(self, file: Path) -> None:
        """Writes a numpy archive of plain arrays (read it with allow_pickle=False)."""
        with replacing(file) as stream:
            np.savez_compressed(stream, table=self.table, unfinished_at=self.unfinished_at, stalls_at=self.stalls_at)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Timeline)
            and np.array_equal(self.table, other.table)
            and np.array_equal(self.unfinished_at, other.unfinished_at)
            and np.array_equal(self.stalls_at, other.stalls_at)
        )

    def __len__(self) -> int:
        return int(self.table[:, 4].sum())

    def errors(self) -> int:
        """Returns the number of failed requests."""
        return int(self.table[self.table[:, 1] != SUCCEEDED, 4].sum())

    def rows(self, start: int, end: int) -> Rows:
        """Returns the requests of the seconds from `start` to before `end`, with the latencies of their bins.

        Within a second they are spread evenly, in a random order from a fixed seed: their own order is not known, and
        an order by latency would look like a trend.
        """
        chosen = self.table[(self.table[:, 0] >= start) & (self.table[:, 0] < end)]
        second, outcome, send_bin, intended_bin = np.repeat(chosen[:, :4], chosen[:, 4], axis=0).T
        order = np.lexsort([np.random.default_rng(SPREAD_SEED).random(len(second)), second])
        second = second[order]
        _, first, counts = np.unique(second, return_index=True, return_counts=True)
        place = (np.arange(len(second)) - np.repeat(first, counts) + 0.5) / np.repeat(counts, counts)
        return Rows(
            finished_s=second - start + place,
            latencies_ms=latencies_of(send_bin[order].astype(np.int32)),
            from_intended_ms=latencies_of(intended_bin[order].astype(np.int32)),
            succeeded=outcome[order] == SUCCEEDED,
            timed_out=outcome[order] == TIMED_OUT,
        )


def merge_timelines(timelines: Sequence[Timeline]) -> Timeline:
    """Returns the timeline of all requests of `timelines`."""
    return Timeline(
        _added(np.concatenate([timeline.table for timeline in timelines])),
        np.sort(np.concatenate([timeline.unfinished_at for timeline in timelines])),
        merge_stalls([timeline.stalls_at for timeline in timelines]),
    )


def _added(cells: Integers) -> Integers:
    """Adds the counts of rows that are otherwise equal. Each row is packed into one number, for quick sorting."""
    second, outcome, send_bin, intended_bin, count = cells.T
    first = second.min() if len(second) else 0
    middle = 1 << (BIN_BITS - 1)  # bins below 1 ms are negative
    when = second - first << OUTCOME_BITS | outcome
    packed = ((when << BIN_BITS | send_bin + middle) << BIN_BITS) | intended_bin + middle
    keys, inverse = np.unique(packed, return_inverse=True)
    mask = (1 << BIN_BITS) - 1
    columns = [
        (keys >> 2 * BIN_BITS + OUTCOME_BITS) + first,
        keys >> 2 * BIN_BITS & (1 << OUTCOME_BITS) - 1,
        (keys >> BIN_BITS & mask) - middle,
        (keys & mask) - middle,
        np.bincount(inverse, weights=count, minlength=len(keys)).astype(np.int64),
    ]
    return np.column_stack(columns)
