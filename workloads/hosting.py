"""`[hosting]` of workload.toml: where the model runs in production."""

from typing import Annotated, Literal

from pydantic import Field

from workloads.document import Document
from workloads.endpoint_hosting import SageMakerEndpointHosting

Hosted = Annotated[str, Field(description="The target or variant that is deployed.")]


class EcsServiceHosting(Document):
    """A service on EC2 instances behind a network load balancer."""

    kind: Literal["ecs-service"]
    target: Hosted


class ScheduledBatchHosting(Document):
    """A batch that starts by the clock."""

    kind: Literal["scheduled-batch"]
    target: Hosted
    schedule: Annotated[str, Field(pattern=r"^(cron|rate)\(.+\)$")] = Field(
        description="As EventBridge writes it: cron(0 2 * * ? *), in UTC."
    )


Hosting = Annotated[SageMakerEndpointHosting | EcsServiceHosting | ScheduledBatchHosting, Field(discriminator="kind")]
