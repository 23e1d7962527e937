"""When the requests of an open loop are meant to be sent. Pure: seconds since the start, no clock.

A Poisson process of a constant rate: exponential gaps from a seed, so the same plan gives the same instants.
"""

import numpy as np

from inference_recommender.capacity.closed_loop import Floats
from inference_recommender.load_generator.plan import Arrivals


def arrival_times(arrivals: Arrivals, longest_s: float | None = None) -> Floats:
    """Ascending, in [0, the duration); cut at `longest_s`."""
    per_second = arrivals.invocations_per_minute / 60
    end = end_of(arrivals, longest_s)
    random = np.random.default_rng(arrivals.seed)
    times = np.zeros(0)
    while not len(times) or times[-1] < end:
        # Enough in one go nearly always: five standard deviations above the expected number.
        expected = per_second * end
        gaps = random.exponential(1 / per_second, int(expected + 5 * np.sqrt(expected) + 16))
        times = np.concatenate([times, (times[-1] if len(times) else 0.0) + np.cumsum(gaps)])
    return times[times < end]


def end_of(arrivals: Arrivals, longest_s: float | None = None) -> float:
    return min(arrivals.duration_in_seconds, longest_s or arrivals.duration_in_seconds)
