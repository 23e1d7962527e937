"""Services whose probes are computed, without chance: a capacity for each configuration, and what is late around it."""

from collections.abc import Callable

from inference_recommender.capacity.limit import Limit
from inference_recommender.tune.evidence import Glimpse
from inference_recommender.tune.space import Configuration
from workloads import Serving

P99 = Limit(percentile=99.0, latency_ms=50.0)
SLOPE = 18.0
OVERLOADED = 1.2
"""Times its capacity, at which a service's backlog grows to the end of a probe."""
CEILING = 1.1
"""Times its capacity, the most that it answers."""


def configuration(batch: int, delay_ms: float = 0.0, instances: int = 1, target: str = "cpu") -> Configuration:
    serving = Serving(max_batch_size=batch, max_queue_delay_ms=delay_ms, model_instances=instances)
    return Configuration(target=target, threads=1, serving=serving)


class Analytic:
    """A `Probe` of services with the capacities that `bears` tells; it keeps what it was asked."""

    def __init__(self, bears: Callable[[Configuration], float]) -> None:
        self._bears = bears
        self.asked: list[tuple[Configuration, float]] = []

    def __call__(self, asked: Configuration, rate: float, duration_s: float) -> Glimpse:
        self.asked.append((asked, rate))
        over = rate / self._bears(asked)
        requests = max(round(rate * duration_s / 60 / 5), 1)
        late = min(round(requests * P99.allowed * over**SLOPE), requests)
        return Glimpse(
            invocations_per_minute=rate,
            duration_s=duration_s,
            sent=5 * requests,
            requests=(requests,) * 5,
            late=(late,) * 5,
            latency_ms=min(50.0 * over**2, 1000.0),
            ceiling_per_minute=self._bears(asked) * CEILING if over >= OVERLOADED else None,
        )

    @property
    def configurations(self) -> set[Configuration]:
        return {each for each, _ in self.asked}
