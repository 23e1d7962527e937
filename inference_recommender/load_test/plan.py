"""A workload's traffic against what is served, as the generator's plan. Pure.

The traffic, its stopping conditions and the latency limit are those of a job; what the service would not take of them
(its documented users and durations) is no matter here.
"""

from pathlib import Path

from inference_recommender.jobs.requests import JSON, stopping_conditions, traffic_pattern
from inference_recommender.load_generator.plan import LoadPlan, StoppingConditions, TrafficPattern
from inference_recommender.load_test.served import Served
from workloads import LatencyObjective, PhasedTraffic, StairTraffic


def load_plan(
    traffic: PhasedTraffic | StairTraffic, objective: LatencyObjective, served: Served, payloads: Path
) -> LoadPlan:
    """The generator calibrates itself first, so that it can tell when it was the bottleneck."""
    return LoadPlan(
        url=served.url,
        endpoint=served.endpoint,
        payloads=payloads,
        content_type=JSON,
        traffic_pattern=TrafficPattern.model_validate(traffic_pattern(traffic), strict=False),
        stopping_conditions=StoppingConditions.model_validate(stopping_conditions(traffic, objective), strict=False),
        calibrate=True,
    )
