"""A service that answers a probe in a known way."""

import numpy as np

from inference_recommender.capacity.probe import ProbeRecords
from inference_recommender.capacity.search import SendProbe


def bearing(capacity_per_minute: float, seed: int = 0) -> SendProbe:
    """Returns a service with independent latencies. Its P90 is 50 ms at that rate, and proportional to the rate."""
    random = np.random.default_rng(seed)

    def probe(rate_per_minute: float, duration_s: float) -> ProbeRecords:
        intended = np.sort(random.uniform(0, duration_s, random.poisson(rate_per_minute / 60 * duration_s)))
        mean = 50.0 / np.log(10) * rate_per_minute / capacity_per_minute
        return ProbeRecords(
            duration_s=duration_s, intended_s=intended, latencies_ms=random.exponential(mean, len(intended))
        )

    return probe
