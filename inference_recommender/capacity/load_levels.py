"""Cuts a run into blocks of time and sorts the blocks into levels of equal load. Pure.

Load is the mean number of requests in flight; in a closed loop that is the number of users, read from the requests
themselves. A rate counts as sustained only over a level: blocks that last at least `enough_s` together and have as many
requests as the percentile needs. Levels are formed from the highest load downwards, so that blocks left over are at the
lowest load, where no capacity lies.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inference_recommender.capacity.statistics import Bools, Floats

Indices = npt.NDArray[np.intp]

SAME_LOAD = 0.05
"""Loads that differ by no more than this share, or by half a request, are equal."""

BLOCK_S = 1.0
LATENCIES_PER_BLOCK = 4
"""A block lasts at least this many median latencies: requests that delay each other are then mostly in one block."""
FEWEST_BLOCKS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """Equally long stretches of a run; arrays have an entry per block, in order of time."""

    block_s: float
    start_s: Floats
    load: Floats
    """Mean number of requests in flight."""
    invocations: Floats
    """Number of successful requests that finished in the block."""
    errors: Floats
    """Number of failed requests that finished in the block."""
    block_of_request: Indices
    """The block in which each request finished; -1 before the first, the number of blocks after the last."""


def blocks(finished_s: Floats, latencies_ms: Floats, succeeded: Bools, start_s: float, end_s: float) -> Blocks:
    """Cuts the run from `start_s` to `end_s`. The arrays have an entry per request, in order of finish."""
    first, last = np.searchsorted(finished_s, [start_s, end_s])
    median_s = float(np.median(latencies_ms[first:last])) / 1000 if last > first else 0.0
    wanted_s = max(BLOCK_S, LATENCIES_PER_BLOCK * median_s)
    count = max(int((end_s - start_s) / wanted_s), FEWEST_BLOCKS)
    edges = np.linspace(start_s, end_s, count + 1)
    block_of_request = np.searchsorted(edges, finished_s, side="right") - 1
    inside = (block_of_request >= 0) & (block_of_request < count)
    return Blocks(
        block_s=(end_s - start_s) / count,
        start_s=edges[:-1],
        load=np.diff(_requests_in_flight_s(finished_s, latencies_ms, edges)) * count / (end_s - start_s),
        invocations=per_block(block_of_request, inside & succeeded, count),
        errors=per_block(block_of_request, inside & ~succeeded, count),
        block_of_request=block_of_request,
    )


def per_block(block_of_request: Indices, chosen: Bools, count: int) -> Floats:
    """Returns the number of chosen requests in each of `count` blocks; all of them must have finished in one."""
    return np.bincount(block_of_request[chosen], minlength=count).astype(np.float64)


def load_levels(load: Floats, invocations: Floats, block_s: float, enough_s: float, needed: int) -> list[Indices]:
    """Returns the blocks of each level in order of time, levels from the lowest load to the highest.

    `load` and `invocations` have an entry per block; a level lasts at least `enough_s` seconds and has at least
    `needed` invocations.
    """
    levels: list[Indices] = []
    members: list[int] = []
    for block in np.argsort(-load, kind="stable"):
        if _is_level(members, invocations, block_s, enough_s, needed) and not _same_load(load[members[0]], load[block]):
            levels.append(np.sort(np.array(members)))
            members = []
        members.append(int(block))
    if _is_level(members, invocations, block_s, enough_s, needed):
        levels.append(np.sort(np.array(members)))
    return levels[::-1]


def longest_stretch(members: Indices) -> Indices:
    """Returns the longest row of neighbouring blocks among `members`, the latest of equally long ones."""
    stretches = np.split(members, np.flatnonzero(np.diff(members) > 1) + 1)
    return max(reversed(stretches), key=len)


def _same_load(top: float, load: float) -> bool:
    return bool(load >= top - max(0.5, SAME_LOAD * top))


def _is_level(members: list[int], invocations: Floats, block_s: float, enough_s: float, needed: int) -> bool:
    return len(members) * block_s >= enough_s - 1e-9 and float(invocations[members].sum()) >= needed


def _requests_in_flight_s(finished_s: Floats, latencies_ms: Floats, at_s: Floats) -> Floats:
    """Returns the integral of the number of requests in flight from the beginning to each of `at_s`, in seconds."""
    return _elapsed_since(np.sort(finished_s - latencies_ms / 1000), at_s) - _elapsed_since(finished_s, at_s)


def _elapsed_since(events_s: Floats, at_s: Floats) -> Floats:
    """Returns, for each moment, the sum of the seconds since every earlier event."""
    before = np.searchsorted(events_s, at_s)
    sums: Floats = np.concatenate([[0.0], np.cumsum(events_s)])
    elapsed: Floats = before * at_s - sums[before]
    return elapsed
