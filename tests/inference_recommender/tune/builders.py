"""Services with computed probes, for tests of `tune`, and its documents."""

from collections.abc import Callable, Sequence

from inference_recommender.capacity.rate_at_limit import RateAtLimit
from inference_recommender.capacity.statistics import Limit
from inference_recommender.tune.folder import TunePlan
from inference_recommender.tune.probe_counts import ProbeCounts
from inference_recommender.tune.space import ServingConfiguration
from workloads import Serving

P99 = Limit(percentile=99.0, latency_ms=50.0)
SLOPE = 18.0
OVERLOADED = 1.2
"""Factor of the capacity from which on a backlog grows to the end of a probe."""
CEILING = 1.1
"""Factor of the capacity: the maximum rate of answers."""


def configuration(batch: int, delay_ms: float = 0.0, instances: int = 1, target: str = "cpu") -> ServingConfiguration:
    serving = Serving(max_batch_size=batch, max_queue_delay_ms=delay_ms, model_instances=instances)
    return ServingConfiguration(target=target, threads=1, serving=serving)


def a_capacity(rate: float, low: float, high: float) -> RateAtLimit:
    return RateAtLimit(rate=rate, low=low, high=high, surely=low, slope=1.0)


def a_plan(configurations: Sequence[ServingConfiguration], workload: str = "spellcheck") -> TunePlan:
    return TunePlan(
        workload=workload,
        configurations=tuple(configurations),
        left_out={},
        archives={},
        instance_type=None,
        longest_s=1800.0,
    )


class Analytic:
    """A `SendProbe` of services with the given capacities. Records its calls."""

    def __init__(self, capacity: Callable[[ServingConfiguration], float]) -> None:
        self._capacity = capacity
        self.asked: list[tuple[ServingConfiguration, float]] = []

    def __call__(self, asked: ServingConfiguration, rate: float, duration_s: float) -> ProbeCounts:
        self.asked.append((asked, rate))
        over = rate / self._capacity(asked)
        requests = max(round(rate * duration_s / 60 / 5), 1)
        late = min(round(requests * P99.allowed * over**SLOPE), requests)
        return ProbeCounts(
            invocations_per_minute=rate,
            duration_s=duration_s,
            sent=5 * requests,
            requests=(requests,) * 5,
            late=(late,) * 5,
            late_share=late / requests,
            latency_ms=min(50.0 * over**2, 1000.0),
            ceiling_per_minute=self._capacity(asked) * CEILING if over >= OVERLOADED else None,
        )

    @property
    def configurations(self) -> set[ServingConfiguration]:
        return {each for each, _ in self.asked}
