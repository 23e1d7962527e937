"""A temporary endpoint for a model. It is deleted however its use ends."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aws_api.expiry import GRACE_S, expiry_tag
from aws_api.sagemaker import SageMakerAccount
from workloads import Unavailable

POLL_S = 1.0
START_S = 3600.0
"""Longest wait until an endpoint is in service, in seconds. Starts take over 10 minutes: see
hashicorp/terraform-provider-aws#39090."""
VARIANT = "AllTraffic"

Sleep = Callable[[float], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointSpec:
    """An endpoint of one instance."""

    model: str
    variant: Mapping[str, Any]
    """The members of its ProductionVariant that depend on the instance type."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment of a copy of the model; if empty, the model itself is used."""
    lifetime_s: float
    """Seconds that it is needed once it is in service."""
    name: str | None = None
    """Default: a random one."""


@contextmanager
def temporary_endpoint(
    account: SageMakerAccount, spec: EndpointSpec, progress: Callable[[str], None], sleep: Sleep = time.sleep
) -> Iterator[str]:
    """Yields the name of an endpoint that is in service. Raises `Unavailable`."""
    name = spec.name or f"open-{uuid.uuid4().hex[:12]}"
    try:
        _make(account, name, spec)
        _wait(account, name, sleep)
        yield name
    finally:
        account.delete_endpoint(name, progress, sleep)
        if spec.environment:
            account.delete_model(name)


def _make(account: SageMakerAccount, name: str, spec: EndpointSpec) -> None:
    tags = [expiry_tag(datetime.now(UTC) + timedelta(seconds=START_S + spec.lifetime_s + GRACE_S))]
    model = spec.model
    if spec.environment:
        model, copied = name, account.model(spec.model)
        container = copied["PrimaryContainer"]
        container = {**container, "Environment": {**container.get("Environment", {}), **spec.environment}}
        request = {"ModelName": name, "ExecutionRoleArn": copied["ExecutionRoleArn"], "PrimaryContainer": container}
        account.make_model({**request, "Tags": tags})
    variant = {**spec.variant, "VariantName": VARIANT, "ModelName": model, "InitialInstanceCount": 1}
    account.make_endpoint(
        {"EndpointConfigName": name, "ProductionVariants": [variant], "Tags": tags},
        {"EndpointName": name, "EndpointConfigName": name, "Tags": tags},
    )


def _wait(account: SageMakerAccount, name: str, sleep: Sleep) -> None:
    for _ in range(round(START_S / POLL_S)):
        described = account.describe_endpoint(name)
        if (status := described["EndpointStatus"]) == "InService":
            return
        if status != "Creating":
            reason = described.get("FailureReason", "the service gave no reason").rstrip(".")
            raise Unavailable(f"endpoint {name} is {status}: {reason}. See `python -m stacks explain {name}`.")
        sleep(POLL_S)
    raise Unavailable(f"endpoint {name} was not in service after {START_S:.0f} s")
