"""The model server that a load test measures, and the generator's plan against it. Pure.

The plan has a job's traffic, stopping conditions and latency limit; the service's own limits of users and durations do
not apply.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from aws_api.errors import is_this_machine
from inference_recommender.load_generator.plan import LoadPlan, SageMakerEndpoint, StoppingConditions, TrafficPattern
from inference_recommender.measure.job_requests import JSON, stopping_conditions, traffic_pattern
from inference_recommender.measurement import DeployedEndpoint
from workloads import LatencyObjective, PhasedTraffic, StairTraffic

MeasuredOn = Literal["sagemaker", "local", "service"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """A model behind a SageMaker endpoint or a URL: either `endpoint` or `url` is set."""

    name: str
    """The endpoint's name or the URL, for messages."""
    url: str | None
    endpoint: SageMakerEndpoint | None
    instance_type: str
    instance_count: int
    measured_on: MeasuredOn
    region: str | None
    server_url: str | None = None
    """Where the server behind an endpoint is asked directly, which an account on this machine tells."""


def endpoint_served(deployed: DeployedEndpoint, region: str, host: str, server_url: str | None = None) -> Served:
    """`host` receives the requests: an endpoint of an account on this machine counts as local, and as one instance, for
    one server answers there for all. `server_url` is what such an account tells of it.
    """
    local = is_this_machine(host)
    return Served(
        name=deployed.name,
        url=None,
        endpoint=SageMakerEndpoint(name=deployed.name, region=region),
        instance_type=deployed.instance_type,
        instance_count=1 if local else deployed.instance_count,
        measured_on="local" if local else "sagemaker",
        region=region,
        server_url=server_url,
    )


def url_served(url: str, model: str, instance_type: str, instance_count: int, region: str | None) -> Served:
    """Describes a KServe v2 server. A URL without a path is completed to the model's `infer`."""
    return Served(
        name=url,
        url=infer_url(url, model),
        endpoint=None,
        instance_type=instance_type,
        instance_count=instance_count,
        measured_on="local" if is_this_machine(urlsplit(url).hostname or "") else "service",
        region=region,
    )


def infer_url(url: str, model: str) -> str:
    parts = urlsplit(url)
    return f"{url.rstrip('/')}/v2/models/{model}/infer" if parts.path in ("", "/") and not parts.query else url


def load_plan(
    traffic: PhasedTraffic | StairTraffic, objective: LatencyObjective, served: Served, payloads: Path
) -> LoadPlan:
    """Returns the plan of a load test."""
    return LoadPlan(
        url=served.url,
        endpoint=served.endpoint,
        payloads=payloads,
        content_type=JSON,
        traffic_pattern=TrafficPattern.model_validate(traffic_pattern(traffic), strict=False),
        stopping_conditions=StoppingConditions.model_validate(
            stopping_conditions(traffic, objective, objective.percentile), strict=False
        ),
    )
