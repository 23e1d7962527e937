"""A run in blocks of time, and the blocks sorted into levels of equal load. Pure.

Load is the mean number of requests in flight: in a closed loop the users, told by the requests themselves. A level is
what a rate can be *sustained* over: at least `enough_s` in all and as many requests as the percentile needs. Levels are
formed from the highest load downwards, so that what is left over is at the lowest, where no capacity lies.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inference_recommender.capacity.statistics import Bools, Floats

Indices = npt.NDArray[np.intp]

SAME_LOAD = 0.05
"""Loads as near as this, or half a request, are one."""

BLOCK_S = 1.0
LATENCIES_PER_BLOCK = 4
"""A block lasts this many median latencies at least: what one request delays, it delays mostly within its block."""
FEWEST_BLOCKS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """Equal stretches of a run, an entry per block, in order of time."""

    block_s: float
    start_s: Floats
    load: Floats
    invocations: Floats
    """Successful."""
    errors: Floats
    block_of_request: Indices
    """The block in which each request finished; -1 and the number of blocks stand for before and after."""


def blocks(finished_s: Floats, latencies_ms: Floats, succeeded: Bools, start_s: float, end_s: float) -> Blocks:
    """The run from `start_s` to `end_s`. The arrays have one entry per request, in order of finish."""
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
    """How many of the chosen requests each block has; all of them finished in one of the `count` blocks."""
    return np.bincount(block_of_request[chosen], minlength=count).astype(np.float64)


def load_levels(load: Floats, invocations: Floats, block_s: float, enough_s: float, needed: int) -> list[Indices]:
    """The blocks of each level, in order of time; levels from the lowest load to the highest."""
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
    """The longest row of neighbouring blocks among `members`, the latest of equals."""
    stretches = np.split(members, np.flatnonzero(np.diff(members) > 1) + 1)
    return max(reversed(stretches), key=len)


def _same_load(top: float, load: float) -> bool:
    return bool(load >= top - max(0.5, SAME_LOAD * top))


def _is_level(members: list[int], invocations: Floats, block_s: float, enough_s: float, needed: int) -> bool:
    return len(members) * block_s >= enough_s - 1e-9 and float(invocations[members].sum()) >= needed


def _requests_in_flight_s(finished_s: Floats, latencies_ms: Floats, at_s: Floats) -> Floats:
    """The integral of the number of requests in flight, from the beginning to each of `at_s`."""
    return _elapsed_since(np.sort(finished_s - latencies_ms / 1000), at_s) - _elapsed_since(finished_s, at_s)


def _elapsed_since(events_s: Floats, at_s: Floats) -> Floats:
    """Of all events before each moment: the sum of how long ago they were."""
    before = np.searchsorted(events_s, at_s)
    sums: Floats = np.concatenate([[0.0], np.cumsum(events_s)])
    elapsed: Floats = before * at_s - sums[before]
    return elapsed
