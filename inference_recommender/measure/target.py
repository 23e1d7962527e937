"""The endpoint or server that open arrivals go to, and what is known of it.

All is pure but the adapter at the end, which asks AWS what an endpoint is.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from aws_api.errors import is_this_machine, translate_aws_errors
from aws_api.expiry import expiry_of
from inference_recommender.load_generator.plan import SageMakerEndpoint
from inference_recommender.measure.aws import INVOCATIONS_URL_TAG, resource_id
from inference_recommender.measure.load_test_aws import LoadTestAws
from inference_recommender.measure.served import MeasuredOn, infer_url
from workloads import Unavailable, UsageError

ARCHIVE_KEY = re.compile(r"/([0-9a-f]{64})\.tar\.gz$")
"""The key that the stacks give an archive in S3."""
UNKNOWN_TYPE = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Either `url` or `endpoint` is set; an endpoint of the local account is asked past it, by its server's URL."""

    name: str
    """The endpoint's name or the URL."""
    url: str | None = None
    endpoint: SageMakerEndpoint | None = None
    instances: int
    """How many share the requests."""
    stands_in: bool = False
    """Whether one server answers for all of an endpoint's instances, as on the local account."""
    instance_type: str
    archive_sha256: str | None
    """The hash of the model archive that serves; None where nothing tells."""
    expires_at: datetime | None = None
    measured_on: MeasuredOn


def url_target(url: str, model: str, instances: int, instance_type: str | None, archive_sha256: str | None) -> Target:
    """Describes a KServe v2 server; `archive_sha256` is what is known to serve there."""
    if not re.fullmatch(r"https?://[^/]+(/.*)?", url):
        raise UsageError(f"--url: got '{url}', but a URL is http://HOST:PORT or https://HOST.")
    return Target(
        name=url,
        url=infer_url(url, model),
        instances=instances,
        instance_type=instance_type or UNKNOWN_TYPE,
        archive_sha256=archive_sha256,
        measured_on="local" if is_this_machine(urlsplit(url).hostname or "") else "service",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """The answers of AWS about an endpoint."""

    endpoint: Mapping[str, Any]
    config: Mapping[str, Any]
    model: Mapping[str, Any]
    tags: Sequence[Mapping[str, str]]
    scalable_targets: Sequence[Mapping[str, Any]]

    @property
    def archive_url(self) -> str:
        """Where the model's archive is; empty where nothing tells."""
        url: str = self.model.get("PrimaryContainer", {}).get("ModelDataUrl", "")
        return url


def endpoint_target(described: Described, region: str, *, on_this_machine: bool) -> Target:
    """Returns an endpoint as it is asked. Raises `Unavailable` where not every instance would get its share."""
    name, variants = described.endpoint["EndpointName"], described.config["ProductionVariants"]
    if described.endpoint["EndpointStatus"] != "InService":
        raise Unavailable(f"{name} is {described.endpoint['EndpointStatus']}. Wait until it is InService.")
    if len(variants) != 1 or "InstanceType" not in variants[0]:
        raise Unavailable(
            f"{name}: only endpoints of one variant, on instances, are loaded so. Deploy or name such a one."
        )
    (variant,) = variants
    if described.scalable_targets and not on_this_machine:
        raise Unavailable(
            f"{name}: autoscaling is on, so that its instances would become more under the load. Deploy with `-c "
            f"autoscaling=off`, or deregister {resource_id(name, variant['VariantName'])} meanwhile."
        )
    counts = [item.get("CurrentInstanceCount") for item in described.endpoint.get("ProductionVariants", [])]
    count = next(filter(None, counts), variant["InitialInstanceCount"])
    archive = ARCHIVE_KEY.search(described.archive_url)
    direct = next((tag["Value"] for tag in described.tags if tag["Key"] == INVOCATIONS_URL_TAG), None)
    return Target(
        name=name,
        url=direct,
        endpoint=None if direct else SageMakerEndpoint(name=name, region=region),
        instances=1 if on_this_machine else count,
        stands_in=on_this_machine,
        instance_type=variant["InstanceType"],
        archive_sha256=archive[1] if archive else None,
        expires_at=expiry_of(described.tags),
        measured_on="local" if on_this_machine else "sagemaker",
    )


class TargetAws(LoadTestAws):
    def described(self, name: str) -> Described:
        """Raises `AwsUnavailable` where there is no such endpoint."""
        sagemaker = self.client("sagemaker")
        with translate_aws_errors("DescribeEndpoint"):
            endpoint = sagemaker.describe_endpoint(EndpointName=name)
        with translate_aws_errors("DescribeEndpointConfig"):
            config = sagemaker.describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
        with translate_aws_errors("ListTags"):
            pages = sagemaker.get_paginator("list_tags").paginate(ResourceArn=endpoint["EndpointArn"])
            tags = [tag for page in pages for tag in page["Tags"]]
        models = [variant["ModelName"] for variant in config["ProductionVariants"] if "ModelName" in variant]
        with translate_aws_errors("DescribeScalableTargets"):
            ids = [resource_id(name, variant["VariantName"]) for variant in config["ProductionVariants"]]
            targets = self.client("application-autoscaling").describe_scalable_targets(
                ServiceNamespace="sagemaker", ResourceIds=ids
            )["ScalableTargets"]
        model = self.model(models[0]) if models else {}
        return Described(endpoint=endpoint, config=config, model=model, tags=tags, scalable_targets=targets)
