"""Detects for how long a service was slower at first than later under the same load. Pure.

MSER, the marginal standard error rule (White, Simulation 69, 1997; as MSER-5 on means of batches: White, Cobb and
Spratt, Winter Simulation Conference 2000): of n observations, leave out the first d for which
sum((y_i - mean)^2) / (n - d)^2 over the rest is least, with d at most n / 2. Here an observation is the logarithm of
the median latency in a window of time, so that one stall is not taken for a warm-up. MSER leaves a little out even
where nothing warms up; so a cut stands only where the part left out was plainly slower.

Only the first load is looked at: where the load rises, so does the latency, however warm the service is.
"""

import numpy as np

from inference_recommender.capacity.load_levels import SAME_LOAD, Blocks
from inference_recommender.capacity.statistics import Floats

MOST_WINDOWS = 100
FEWEST_WINDOWS = 10
REQUESTS_PER_WINDOW = 5
SLOWER = 0.05
"""Windows left out must be slower than the rest by this share on average …"""
CLEARLY = 4.0
"""… and by this many standard errors of their mean, from the spread of the rest; otherwise nothing warmed up."""
NEARLY = 1.1
"""The error is flat around its minimum once the latency has settled: the earliest cut within this factor is taken."""
NEARLY_HALF = 0.85
"""A steady decline has its minimum at n / 2 and comes near it from nine tenths of that on. So may noise, by chance …"""
LAST = 0.25
"""… but then the last windows left out, this share of them, are no slower than the rest."""


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
    """Returns when the load of a closed loop first changed, in seconds; the end of a run at one load.

    The first block is ignored: users connect in it.
    """
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
    if cut == 0 or not _slower(y[:cut], y[cut:]):
        return 0
    still_falling = cut >= most * NEARLY_HALF and _falling(y[cut - int(np.ceil(cut * LAST)) : cut], y[cut:])
    return n if still_falling else cut


def _slower(left_out: Floats, rest: Floats) -> bool:
    return _differ_clearly(left_out, rest, float(rest.std(ddof=1)))


def _falling(before: Floats, after: Floats) -> bool:
    """Returns whether `before` is slower than `after`, which may still fall: its spread is without the trend."""
    return _differ_clearly(before, after, float(np.diff(after).std(ddof=1)) / np.sqrt(2))


def _differ_clearly(slower: Floats, faster: Floats, spread: float) -> bool:
    error = spread * np.sqrt(1 / len(slower) + 1 / len(faster))
    return float(slower.mean() - faster.mean()) > max(float(np.log1p(SLOWER)), CLEARLY * float(error))


def _window_medians(finished_s: Floats, latencies_ms: Floats, width: float, windows: int) -> Floats:
    """Returns the median latency by window; where nothing finished, that of the next to finish, then under way."""
    parts = np.split(latencies_ms, np.searchsorted(finished_s, width * np.arange(1, windows)))
    medians: list[float] = []
    next_first: float | None = None
    for part in reversed(parts):
        if len(part):
            medians.append(float(np.median(part)))
        elif next_first is not None:
            medians.append(next_first)
        next_first = float(part[0]) if len(part) else next_first
    return np.array(medians[::-1])
