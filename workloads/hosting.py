"""`[hosting]` of workload.toml: where the model runs in production."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from workloads.document import Document
from workloads.endpoint_hosting import KeyArn, SageMakerEndpointHosting

AT_MOST_DAILY = r"cron\(\d{1,2} \d{1,2}( [^ ]+){4}\)|rate\((1 day|\d+ days)\)"

Hosted = Annotated[str, Field(description="The target or variant that is deployed.")]


class ExistingNetwork(Document):
    """A network that is there already: private subnets that reach ECR, S3, CloudWatch Logs and ECS."""

    id: Annotated[str, Field(pattern=r"^vpc-[0-9a-f]+$")]
    cidr: Annotated[str, Field(pattern=r"^[0-9.]+/\d+$")] = Field(description="Addresses that may call the service.")
    subnet_ids: Annotated[tuple[Annotated[str, Field(pattern=r"^subnet-[0-9a-f]+$")], ...], Field(min_length=1)]
    availability_zones: tuple[str, ...] = Field(description="The zone of each subnet, in the same order.")

    @model_validator(mode="after")
    def _each_subnet_has_its_zone(self) -> Self:
        if len(self.subnet_ids) != len(self.availability_zones):
            raise ValueError(
                f"availability_zones: got {len(self.availability_zones)} for {len(self.subnet_ids)} subnet_ids; "
                "name the zone of each subnet, in the same order."
            )
        return self


class _OnEc2(Document):
    image_uri: str | None = Field(
        default=None,
        description="Image in private Amazon ECR of containers/neuron/Dockerfile, or of containers/batch/Dockerfile "
        "for CPU. None: transformers-in-production:inf1, :inf2 or :cpu of the account and region deployed to.",
    )
    availability_zones: tuple[str, ...] = Field(
        default=(),
        description="Zones to run in, by name (us-east-1b) or by id (use1-az4). None given: zone_count of those that "
        "have the instance type.",
    )
    zone_count: Annotated[int, Field(ge=1, le=3)] | None = Field(
        default=None,
        description="How many zones to run in where none is named. The shared network has VPC endpoints in each, and "
        "pays for them. None: two in production, one elsewhere.",
    )
    kms_key_arn: KeyArn | None = Field(
        default=None,
        description="Encrypts logs, rows and answers; its policy lets IAM decide, and CloudWatch Logs use it. What "
        "alarms say then gets a key that the stack makes. None: keys of AWS's own, which cost nothing.",
    )
    vpc: ExistingNetwork | None = Field(
        default=None, description="None: the network that all workloads on EC2 share, without internet."
    )


class EcsServiceHosting(_OnEc2):
    """A service on EC2 instances behind a network load balancer."""

    kind: Literal["ecs-service"]
    target: Hosted


class ScheduledBatchHosting(_OnEc2):
    """A scheduled batch on EC2 instances."""

    kind: Literal["scheduled-batch"]
    target: Hosted
    schedule: str = Field(description="In EventBridge's syntax: cron(0 2 * * ? *), in UTC; at most once a day.")
    shards: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1,
        description="Instances at work at once, until recommendation.json says how many; each answers its share of the "
        "rows.",
    )
    deadline_hours: Annotated[int, Field(ge=1, le=23)] = Field(
        default=6, description="A run that takes longer is stopped, and an alarm says so."
    )
    max_bad_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.01, description="A run with a larger share of rows that cannot be answered has failed."
    )

    @field_validator("schedule", mode="after")
    @classmethod
    def _at_most_once_a_day(cls, schedule: str) -> str:
        if not re.fullmatch(AT_MOST_DAILY, schedule):
            raise ValueError(
                f"got '{schedule}'; a run is named after its day, so at most one can start in it: "
                "cron(MINUTE HOUR …) with one minute and one hour, as in cron(0 2 * * ? *), or rate(N days)."
            )
        return schedule

    @property
    def daily(self) -> bool:
        return self.schedule == "rate(1 day)" or self.schedule.endswith((" * * ? *)", " ? * * *)"))


Hosting = Annotated[SageMakerEndpointHosting | EcsServiceHosting | ScheduledBatchHosting, Field(discriminator="kind")]
