"""The system under test: a SageMaker endpoint or a server at a URL. Pure.

A SageMaker endpoint is invoked through the service. If the endpoint carries the URL of the server behind it, as on the
local account, requests go to that server directly, and it stands in for all instances.
"""

import os
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from aws_api.errors import AwsUnavailable, is_this_machine
from aws_api.expiry import expiry_of
from aws_api.sagemaker import INVOCATIONS_URL_TAG, EndpointDescription, scaling_resource_id
from workloads import UsageError

MeasuredOn = Literal["sagemaker", "local", "service"]
UNKNOWN_TYPE = "unknown"
ARCHIVE_KEY = re.compile(r"/([0-9a-f]{64})\.tar\.gz$")
"""The S3 key that the stacks give a model archive."""
FLEET = re.compile(r"(?:(?P<count>[1-9]\d*)x)?(?P<type>(?:ml\.)?[a-z]+\d[a-z0-9-]*\.[a-z0-9-]+)")
"""Instances behind a URL: "2xml.inf2.xlarge", or a type alone for one instance."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemUnderTest:
    """Requests go to `url` if it is set, otherwise to the endpoint called `name` in `region`."""

    name: str
    """The endpoint's name or the URL."""
    url: str | None = None
    variant: str | None = None
    instance_type: str = UNKNOWN_TYPE
    instances: int = 1
    """The number of instances that share the requests."""
    stands_in: bool = False
    """Whether one server answers for all instances of an endpoint."""
    archive_sha256: str | None = None
    """The hash of the model archive; None if it is unknown."""
    expires_at: datetime | None = None
    measured_on: MeasuredOn
    machine: str
    """Describes in words for what the figures are valid."""
    region: str = "unknown"

    def configuration(self) -> dict[str, Any]:
        """Returns an endpoint in the API's shape of a test's EndpointConfiguration."""
        return {
            "EndpointName": self.name,
            "VariantName": self.variant,
            "InstanceType": self.instance_type,
            "InitialInstanceCount": self.instances,
        }


def system_at_url(
    url: str, model: str, fleet: str | None = None, *, archive_sha256: str | None = None, region: str = "unknown"
) -> SystemUnderTest:
    """Describes a KServe v2 server. A URL without a path is completed to the infer URL of `model`; `fleet` is the
    argument of --instances. Raises `UsageError`.
    """
    if not re.fullmatch(r"(https?|http\+unix)://[^/]+(/.*)?", url):
        raise UsageError(
            f"--url: got '{url}'. Allowed: http://HOST:PORT or https://HOST, with the model's path or none."
        )
    instances, instance_type = 1, UNKNOWN_TYPE
    if fleet is not None:
        if (named := FLEET.fullmatch(fleet)) is None:
            raise UsageError(f"--instances: got '{fleet}'. Allowed: TYPE or NxTYPE, such as 2xml.inf2.xlarge.")
        instances, instance_type = int(named["count"] or 1), named["type"]
    parts = urlsplit(url)
    here = parts.scheme == "http+unix" or is_this_machine(parts.hostname or "")
    bare = parts.path in ("", "/") and not parts.query
    return SystemUnderTest(
        name=url,
        url=f"{url.rstrip('/')}/v2/models/{model}/infer" if bare else url,
        instance_type=instance_type,
        instances=instances,
        archive_sha256=archive_sha256,
        measured_on="local" if here else "service",
        machine=machine_description() if here else _requests_from_here(url, instances, instance_type),
        region=region,
    )


def system_of_endpoint(described: EndpointDescription, region: str) -> SystemUnderTest:
    """Describes an endpoint of one variant on a fixed number of instances. Raises `AwsUnavailable` for any other."""
    name, variants = described.name, described.config["ProductionVariants"]
    status, direct = described.endpoint["EndpointStatus"], described.tag(INVOCATIONS_URL_TAG)
    if status != "InService":
        raise _unsuitable(name, f"it is {status}. Wait until it is InService.")
    if len(variants) != 1:
        raise _unsuitable(name, f"it has {len(variants)} variants. Allowed: one.")
    (variant,) = variants
    if "InstanceType" not in variant:
        raise _unsuitable(name, "it is serverless. Allowed: an endpoint on instances.")
    if described.config.get("AsyncInferenceConfig"):
        raise _unsuitable(name, "it is asynchronous. Allowed: a real-time endpoint.")
    if described.scalable_targets and direct is None:
        target = scaling_resource_id(name, variant["VariantName"])
        raise _unsuitable(
            name,
            "autoscaling would change its number of instances under load. Deploy with `-c autoscaling=off`, or "
            f"deregister the scalable target {target} during the test.",
        )
    counts = [item.get("CurrentInstanceCount") for item in described.endpoint.get("ProductionVariants", [])]
    count = next(filter(None, counts), variant["InitialInstanceCount"])
    archive = ARCHIVE_KEY.search(described.archive_url)
    return SystemUnderTest(
        name=name,
        url=direct,
        variant=variant["VariantName"],
        instance_type=variant["InstanceType"],
        instances=1 if direct else count,
        stands_in=direct is not None,
        archive_sha256=archive[1] if archive else None,
        expires_at=expiry_of(described.tags),
        measured_on="local" if direct else "sagemaker",
        machine=machine_description() if direct else _requests_from_here(name, count, variant["InstanceType"]),
        region=region,
    )


def machine_description(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Returns this machine's CPU model and cores, such as "AMD EPYC with 2 cores"."""
    count = cores()
    return f"{_cpu_model(cpuinfo)} with {count} core{'s' if count != 1 else ''}"


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _cpu_model(cpuinfo: Path) -> str:
    lines = cpuinfo.read_text("utf-8", "replace").splitlines() if cpuinfo.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def _requests_from_here(name: str, instances: int, instance_type: str) -> str:
    return f"{name} on {instances} × {instance_type}, requests from {machine_description()}"


def _unsuitable(name: str, reason: str) -> AwsUnavailable:
    return AwsUnavailable(f"Endpoint {name} cannot be measured: {reason}")
