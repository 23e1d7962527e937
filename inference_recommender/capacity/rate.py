"""The capacity that a measurement gives within a latency limit."""

from pydantic import Field

from inference_recommender.capacity.probe import Probe
from workloads.document import Document
from workloads.recommendation import CapacityBasis


class Capacity(Document):
    """The highest rate within a latency limit, with its interval and how it was measured."""

    basis: CapacityBasis = "open-loop"
    invocations_per_minute: float | None
    """0 if no rate is within the limit. None if the measurement does not show the capacity."""
    interval: tuple[float, float] | None = None
    """95 % confidence interval of the rate at the limit. May be known although the capacity is not."""
    at_least: float | None = None
    """Lower bound of a capacity that is not known."""
    percentile: str
    limit_ms: float
    latency_ms: float | None = None
    """The percentile at that rate, or in the probe nearest to it. For an estimate of 0: the latency of one request."""
    reason: str = Field(default="", description="Why the search ended.")
    probes: tuple[Probe, ...] = ()

    @property
    def decides(self) -> bool:
        """Whether the capacity is known."""
        return self.invocations_per_minute is not None

    def per_instance(self, instances: int) -> "Capacity":
        """Divides all rates by the number of instances that served them together."""
        if instances == 1:
            return self
        rate, interval, at_least = self.invocations_per_minute, self.interval, self.at_least
        return self.model_copy(
            update={
                "invocations_per_minute": None if rate is None else rate / instances,
                "interval": interval and (interval[0] / instances, interval[1] / instances),
                "at_least": None if at_least is None else at_least / instances,
                "probes": tuple(
                    probe.model_copy(update={"invocations_per_minute": probe.invocations_per_minute / instances})
                    for probe in self.probes
                ),
            }
        )
