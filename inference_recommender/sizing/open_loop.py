"""The result of a search with open-loop arrivals, as a measurement to size a fleet from: the search's own, or
`capacity.json`, which `capacity` keeps. Pure.

Its rate is the highest of arrivals that come whatever the answers do, and no job's MaxInvocations bounds it: it may be
above the 30,000 a minute at which a job of Inference Recommender stops.
"""

from math import inf
from typing import Any, Literal

from pydantic import Field

from inference_recommender.capacity.search import Reason, SearchResult
from inference_recommender.measurement import Measurement, OpenLoop, ProbeSeen
from workloads import LatencyObjective
from workloads.document import Document

NAME = "capacity.json"
UNKNOWN_TYPE = "unknown"


def open_loop(found: SearchResult, objective: LatencyObjective, instances: int, complaint: str = "") -> OpenLoop:
    """Returns a search's result per instance; `complaint` is why the generator was the bottleneck, where it was."""
    low, high = found.interval or (0.0, inf)
    rate = 0.0 if found.reason is Reason.NOTHING_KEEPS else found.invocations_per_minute
    return OpenLoop(
        invocations_per_minute=None if rate is None else rate / instances,
        interval=(low / instances, high / instances) if rate != 0 and high < inf else None,
        at_least=None if rate is not None or found.lower_bound is None else found.lower_bound / instances,
        percentile=objective.percentile,
        limit_ms=objective.model_latency_ms,
        latency_ms=found.latency_ms,
        reason=complaint or found.reason.value,
        probes=tuple(
            ProbeSeen(
                invocations_per_minute=probe.invocations_per_minute / instances,
                duration_s=probe.duration_s,
                latency_ms=probe.latency_ms if probe.latency_ms < inf else None,
                late_share=probe.late_share,
                server=probe.server,
            )
            for probe in found.probed
        ),
    )


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

    def open_loop(self) -> OpenLoop:
        """Returns the same with every rate divided among the instances."""
        rate, (low, high) = self.max_invocations_per_minute, self.max_invocations_interval or (None, None)
        if rate is None and self.reason == Reason.NOTHING_KEEPS.value:
            rate = 0.0
        return OpenLoop(
            invocations_per_minute=None if rate is None else rate / self.instances,
            interval=(
                None if rate is None or low is None or high is None else (low / self.instances, high / self.instances)
            ),
            percentile=self.percentile,
            limit_ms=self.latency_limit_ms,
            latency_ms=self.latency_ms,
            reason=self.reason,
            probes=tuple(
                ProbeSeen(
                    invocations_per_minute=point["invocations_per_minute"] / self.instances,
                    duration_s=point["duration_s"],
                    latency_ms=point["latency_ms"],
                    late_share=point["late_share"],
                    server=point.get("server"),
                )
                for point in self.probes
            ),
        )
