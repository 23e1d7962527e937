"""A temporary endpoint on one instance. It is deleted however its use ends: it costs by the hour."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from aws_api.errors import AwsRefused, AwsUnavailable
from aws_api.expiry import GRACE_S, expiry_tag
from aws_api.sagemaker import SageMakerAccount
from workloads import Unavailable

POLL_S = 1.0
START_S = 3600
"""Longest wait until an endpoint is in service, in seconds. Starts take over 10 minutes: see
hashicorp/terraform-provider-aws#39090."""
VARIANT = "AllTraffic"

Sleep = Callable[[float], None]


class EndpointFailed(Unavailable):
    """The endpoint did not start. `reason` is the service's own."""

    def __init__(self, name: str, status: str, reason: str) -> None:
        self.reason = reason
        super().__init__(f"endpoint {name} is {status}: {reason.rstrip('.')}. See `python -m stacks explain {name}`.")


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointSpec:
    """An endpoint of one instance. Its configuration, and a model of its own, have its name."""

    name: str = field(default_factory=lambda: f"open-{uuid.uuid4().hex[:12]}")
    variant: Mapping[str, Any]
    """The members of its ProductionVariant that depend on the instance type."""
    model: str | None = None
    """An existing model. None: a model with `container` and `role_arn`, which is deleted with the endpoint."""
    container: Mapping[str, Any] = field(default_factory=dict)
    role_arn: str = ""
    lifetime_s: float = 0.0
    """Seconds that it is needed once it is in service."""
    tags: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def temporary_endpoint(
    account: SageMakerAccount, spec: EndpointSpec, progress: Callable[[str], None], sleep: Sleep = time.sleep
) -> Iterator[str]:
    """Yields the name of an endpoint that is in service. Raises `EndpointFailed` or another `Unavailable`."""
    try:
        _make(account, spec)
        _wait(account, spec.name, progress, sleep)
        yield spec.name
    except KeyboardInterrupt:
        account.stop_retrying()
        raise
    finally:
        account.delete_endpoint(spec.name, progress, sleep)
        if spec.model is None:
            account.delete_model(spec.name)


def _make(account: SageMakerAccount, spec: EndpointSpec) -> None:
    """Tags everything with an expiry, so that `jobs cleanup` finds what a killed process leaves."""
    tags = [{"Key": key, "Value": value} for key, value in spec.tags.items()]
    tags.append(expiry_tag(datetime.now(timezone.utc) + timedelta(seconds=START_S + spec.lifetime_s + GRACE_S)))
    if spec.model is None:
        model = {"ModelName": spec.name, "ExecutionRoleArn": spec.role_arn, "PrimaryContainer": dict(spec.container)}
        account.make_model({**model, "Tags": tags})
    variant = {"VariantName": VARIANT, "ModelName": spec.model or spec.name, "InitialInstanceCount": 1}
    try:
        account.make_endpoint(
            {"EndpointConfigName": spec.name, "ProductionVariants": [{**spec.variant, **variant}], "Tags": tags},
            {"EndpointName": spec.name, "EndpointConfigName": spec.name, "Tags": tags},
        )
    except AwsRefused as error:
        if error.code != "ResourceLimitExceeded":
            raise
        raise AwsUnavailable(
            f"The quota does not allow the endpoint: {error.reason}\nRequest more of "
            f"'{spec.variant['InstanceType']} for endpoint usage' in Service Quotas."
        ) from error


def _wait(account: SageMakerAccount, name: str, progress: Callable[[str], None], sleep: Sleep) -> None:
    for waits in range(round(START_S / POLL_S)):
        described = account.describe_endpoint(name)
        if (status := described["EndpointStatus"]) == "InService":
            return
        if status != "Creating":
            raise EndpointFailed(name, status, described.get("FailureReason", "the service gave no reason"))
        if waits % round(60 / POLL_S) == 0:
            progress(f"Endpoint {name} is Creating: {waits * POLL_S / 60:.0f} min")
        sleep(POLL_S)
    raise Unavailable(f"endpoint {name} was not in service after {START_S} s")
