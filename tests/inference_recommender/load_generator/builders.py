"""Requests of a run for tests."""

import numpy as np
import numpy.typing as npt

from inference_recommender.capacity.statistics import Floats
from inference_recommender.load_generator.records import SentRequests


def sent_requests(
    finished_s: Floats, latencies_ms: Floats | float, held_ms: Floats | float = 0.0, status: npt.ArrayLike = 200
) -> SentRequests:
    """Returns requests that were held back by `held_ms` before they were sent."""
    sent_s = finished_s - np.asarray(latencies_ms) / 1000
    return SentRequests(
        intended_s=sent_s - np.asarray(held_ms) / 1000,
        sent_s=sent_s,
        finished_s=finished_s,
        status=np.broadcast_to(np.asarray(status, dtype=np.int16), finished_s.shape).copy(),
    )
