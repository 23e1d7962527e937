"""Blocks of time, levels of equal load, and detection of the warm-up. Pure.

Load is the mean number of requests in flight, in a closed loop the number of users. Levels are formed from the highest
load downwards, so that blocks left over are at the lowest load.

The warm-up is how long a service was slower at first than later under the same load, by the marginal standard error
rule (MSER: White, Simulation 69, 1997; White, Cobb and Spratt, Winter Simulation Conference 2000): leave
out the first d of n observations for which sum((y_i - mean)^2) / (n - d)^2 over the rest is least, d ≤ n / 2. An
observation is the logarithm of the median latency in a window. A cut counts only if the part left out was clearly
slower. Only the first load is used, because latency rises with the load.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from inference_recommender.capacity.statistics import Bools, Floats, Indices

SAME_LOAD = 0.05
"""Loads that differ by no more than this share, or by half a request, are equal."""
BLOCK_S = 1.0
LATENCIES_PER_BLOCK = 4
"""A block lasts at least this many median latencies: requests that delay each other are then mostly in one block."""
FEWEST_BLOCKS = 10
MOST_WINDOWS, FEWEST_WINDOWS, REQUESTS_PER_WINDOW = 100, 10, 5
SLOWER, CLEARLY = 0.05, 4.0
"""Windows left out must be slower than the rest by this share and by this number of standard errors of their mean."""
NEARLY = 1.1
"""The error is flat around its minimum once the latency has settled: the earliest cut within this factor is taken."""
NEARLY_HALF, LAST = 0.85, 0.25
"""A steady decline has its minimum near n / 2. So may noise, but then the last windows left out are no slower."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """Equally long stretches of a run; arrays have an entry per block, in order of time."""

    block_s: float
    start_s: Floats
    load: Floats
    """Mean number of requests in flight."""
    invocations: Floats
    """Successful requests that finished in the block."""
    errors: Floats
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

    A level lasts at least `enough_s` seconds and has at least `needed` invocations.
    """
    levels: list[Indices] = []
    members: list[int] = []

    def complete() -> bool:
        return len(members) * block_s >= enough_s - 1e-9 and float(invocations[members].sum()) >= needed

    for block in np.argsort(-load, kind="stable"):
        top = load[members[0]] if members else 0.0
        if load[block] < top - max(0.5, SAME_LOAD * top) and complete():
            levels.append(np.sort(np.array(members)))
            members = []
        members.append(int(block))
    if complete():
        levels.append(np.sort(np.array(members)))
    return levels[::-1]


def _requests_in_flight_s(finished_s: Floats, latencies_ms: Floats, at_s: Floats) -> Floats:
    """Returns the integral of the number of requests in flight from the beginning to each of `at_s`, in seconds."""

    def elapsed(events_s: Floats) -> Floats:
        """Returns, for each moment, the sum of the seconds since every earlier event."""
        before = np.searchsorted(events_s, at_s)
        sums: Floats = np.concatenate([[0.0], np.cumsum(events_s)])
        return np.subtract(before * at_s, sums[before])

    return elapsed(np.sort(finished_s - latencies_ms / 1000)) - elapsed(finished_s)


def warm_up_s(finished_s: Floats, latencies_ms: Floats, until_s: float) -> float | None:
    """Returns the seconds until the latency settled under a load that did not change before `until_s`.

    0 where it was settled from the beginning, `until_s` where half of that time was not enough, None where too few
    requests finished in it. The arrays have an entry per request, in order of finish.
    """
    last = int(np.searchsorted(finished_s, until_s))
    windows = min(MOST_WINDOWS, last // REQUESTS_PER_WINDOW)
    if windows < FEWEST_WINDOWS:
        return None
    width = until_s / windows
    medians = _window_medians(finished_s[:last], latencies_ms[:last], width, windows)
    return min(settled_from(medians) * width, until_s)


def first_load_s(run: Blocks) -> float:
    """Returns when the load changed after the first block, in which users connect; the end of a run at one load."""
    reference = float(run.load[1])
    changed = np.abs(run.load[1:] - reference) > max(0.5, SAME_LOAD * reference)
    blocks = int(np.argmax(changed)) + 1 if changed.any() else len(run.load)
    return float(run.start_s[0]) + blocks * run.block_s


def settled_from(latencies_ms: Floats) -> int:
    """Returns how many observations to leave out at the beginning; all of them where half are not enough."""
    y = np.log(np.maximum(latencies_ms, 1e-6))
    n = len(y)
    most = n // 2
    errors = [float(((y[d:] - y[d:].mean()) ** 2).sum()) / (n - d) ** 2 for d in range(most + 1)]
    cut = next(d for d, error in enumerate(errors) if error <= NEARLY * min(errors))
    rest = y[cut:]
    if cut == 0 or not _differ_clearly(y[:cut], rest, float(rest.std(ddof=1))):
        return 0
    last = y[cut - int(np.ceil(cut * LAST)) : cut]
    # The rest may still fall, so its spread is taken without the trend.
    falling = cut >= most * NEARLY_HALF and _differ_clearly(last, rest, float(np.diff(rest).std(ddof=1)) / np.sqrt(2))
    return n if falling else cut


def _differ_clearly(slower: Floats, faster: Floats, spread: float) -> bool:
    error = spread * np.sqrt(1 / len(slower) + 1 / len(faster))
    return float(slower.mean() - faster.mean()) > max(float(np.log1p(SLOWER)), CLEARLY * float(error))


def _window_medians(finished_s: Floats, latencies_ms: Floats, width: float, windows: int) -> Floats:
    """Returns the median latency by window; without a finish, that of the next request to finish."""
    edges = [0, *np.searchsorted(finished_s, width * np.arange(1, windows)).tolist(), len(finished_s)]
    known = [(first, max(last, first + 1)) for first, last in pairwise(edges) if first < len(finished_s)]
    return np.array([np.median(latencies_ms[first:last]) for first, last in known])
