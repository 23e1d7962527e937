"""What the harness measures, and what stands behind it. Pure."""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from inference_recommender.load_generator.plan import SageMakerEndpoint
from inference_recommender.measurement import DeployedEndpoint

MeasuredOn = Literal["sagemaker", "local", "service"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    name: str
    """For people: an endpoint's name or a URL."""
    url: str | None
    endpoint: SageMakerEndpoint | None
    """Exactly one of the two is not None."""
    instance_type: str
    instance_count: int
    measured_on: MeasuredOn
    region: str | None


def endpoint_served(deployed: DeployedEndpoint, region: str, host: str) -> Served:
    """`host` is where its requests go: an endpoint of an account on this machine is no SageMaker."""
    return Served(
        name=deployed.name,
        url=None,
        endpoint=SageMakerEndpoint(name=deployed.name, region=region),
        instance_type=deployed.instance_type,
        instance_count=deployed.instance_count,
        measured_on="local" if is_this_machine(host) else "sagemaker",
        region=region,
    )


def url_served(url: str, model: str, instance_type: str, instance_count: int, region: str | None) -> Served:
    """A KServe v2 server. A URL without a path is completed to the model's `infer`."""
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


def is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
