"""The result of a search with open-loop arrivals, as a measurement to size a fleet from: the search's own, or
`capacity.json`, which `capacity` keeps. Pure.

Its rate is the highest of arrivals that come whatever the answers do, and no job's MaxInvocations bounds it: it may be
above the 30,000 a minute at which a job of Inference Recommender stops.
"""

from typing import Any, Literal

from pydantic import Field

from inference_recommender.capacity.probe import Probe
from inference_recommender.capacity.rate import Capacity
from inference_recommender.capacity.search import Reason
from inference_recommender.measurement import Measurement
from workloads.document import Document

NAME = "capacity.json"
UNKNOWN_TYPE = "unknown"


class CapacityFound(Document):
    """The document that `capacity` keeps and prints; rates are of all instances together."""

    max_invocations_per_minute: float | None
    max_invocations_interval: tuple[float | None, float | None] | None
    """95 % confidence interval; None for an end that is not known."""
    latency_ms: float | None
    """The percentile in the probe nearest to that rate: a figure of one probe."""
    percentile: str
    latency_limit_ms: float
    warm_up_s: float | None
    reason: str
    probes: tuple[dict[str, Any], ...]
    rows_per_invocation: int = Field(default=1, ge=1, description="Of every request; all rates are of invocations.")
    url: str | None = None
    instance_type: str = UNKNOWN_TYPE
    instances: int = Field(default=1, ge=1)
    measured_on: Literal["local", "service"] = "service"
    machine: str | None = Field(default=None, description="The machine that made the load.")
    measured_at: str | None = None

    def measurement(self) -> Measurement:
        """Returns the result per instance; a search that found no rate has its reason as the failure's."""
        found = self.open_loop()
        return Measurement(
            instance_type=self.instance_type,
            endpoint_name=self.url or "the server",
            max_invocations_per_minute=None,
            model_latency_ms=None,
            open_loop=found,
            warm_up_s=self.warm_up_s,
            failure_reason=None if found.decides else f"No capacity was found: {self.reason}.",
            instance_count=self.instances,
        )

    def open_loop(self) -> Capacity:
        """Returns the capacity per instance."""
        rate, (low, high) = self.max_invocations_per_minute, self.max_invocations_interval or (None, None)
        if rate is None and self.reason == Reason.NOTHING_KEEPS.value:
            rate = 0.0
        return Capacity(
            invocations_per_minute=rate,
            interval=None if rate is None or low is None or high is None else (low, high),
            percentile=self.percentile,
            limit_ms=self.latency_limit_ms,
            latency_ms=self.latency_ms,
            reason=self.reason,
            probes=tuple(
                Probe(
                    invocations_per_minute=point["invocations_per_minute"],
                    duration_s=point["duration_s"],
                    latency_ms=point["latency_ms"],
                    late_share=point["late_share"],
                    server=point.get("server"),
                )
                for point in self.probes
            ),
        ).per_instance(self.instances)
