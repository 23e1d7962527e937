"""`[hosting]` of workload.toml: where the model runs in production."""

import re
from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator
from typing_extensions import Self

from workloads.document import Document, PositiveFloat, PositiveInt
from workloads.images import CPU_DEFAULT, GPU_DEFAULT, default_version, version_in
from workloads.target import InstanceType

EcrImage = Annotated[str, Field(pattern=r"^\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/[^:@]+[:@].+$")]
KeyArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+$")]
Cooldown = Annotated[int, Field(ge=0, le=3600)]
# Less is over before the alarms, three bad minutes of five, can tell; more steps of more would exceed the 8 hours that
# SageMaker gives an update.
Bake = Annotated[int, Field(ge=300, le=3600)]
StepBake = Annotated[int, Field(ge=300, le=1200)]


def _form(pattern: str, advice: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"got '{text}'. {advice}")
        return text

    return AfterValidator(check)


def ipv4_network(cidr: str) -> IPv4Network:
    """Raises `ValueError` with advice."""
    try:
        return IPv4Network(cidr)
    except ValueError as error:
        raise ValueError(
            f"got '{cidr}': {error}. Write the first address of an IPv4 network and its prefix length: 10.1.0.0/16."
        ) from None


Cidr = Annotated[str, AfterValidator(lambda cidr: str(ipv4_network(cidr)))]
CertificateArn = Annotated[
    str,
    _form(
        r"arn:aws[a-z-]*:acm:[a-z0-9-]+:\d{12}:certificate/[A-Za-z0-9-]+",
        "Write the ARN of a certificate in AWS Certificate Manager: arn:aws:acm:REGION:ACCOUNT:certificate/ID.",
    ),
]
AtMostDaily = Annotated[
    str,
    _form(
        r"cron\(\d{1,2} \d{1,2}( [^ ]+){4}\)|rate\((1 day|\d+ days)\)",
        "A run is named after its day, so at most one can start in it: cron(MINUTE HOUR …) with one minute and one "
        "hour, as in cron(0 2 * * ? *), or rate(N days).",
    ),
]
PrincipalArn = Annotated[
    str,
    _form(
        r"arn:aws[a-z-]*:iam::\d{12}:(root|(user|role)/[\w+=,.@/-]+)",
        "Write the ARN of an account (arn:aws:iam::ACCOUNT:root), a role or a user.",
    ),
]


class AllAtOnce(Document):
    """A new fleet takes all traffic in one step."""

    strategy: Literal["all-at-once"]
    bake_s: Bake = Field(default=600, description="How long the old fleet is kept for a rollback.")


class Canary(Document):
    """A part of a new fleet takes its share of the traffic first, then the rest."""

    strategy: Literal["canary"]
    percent: Annotated[int, Field(ge=1, le=50)] = Field(default=10, description="Share of the fleet in the first step.")
    bake_s: Bake = Field(default=600, description="How long the alarms watch the first step.")


class Linear(Document):
    """A new fleet takes the traffic in equal steps."""

    strategy: Literal["linear"]
    percent: Annotated[int, Field(ge=10, le=50)] = Field(default=25, description="Share of the fleet in each step.")
    bake_s: StepBake = Field(default=300, description="How long the alarms watch each step.")


class Rolling(Document):
    """The fleet is replaced in batches: never two whole fleets, which large accelerators may not be had for."""

    strategy: Literal["rolling"]
    percent: Annotated[int, Field(ge=5, le=50)] = Field(default=25, description="Share of the fleet in each batch.")
    bake_s: StepBake = Field(default=300, description="How long the alarms watch each batch.")


EndpointUpdate = Annotated[AllAtOnce | Canary | Linear | Rolling, Field(discriminator="strategy")]


class ScheduledMinimum(Document):
    """A minimum of instances that the fleet keeps from a time on."""

    schedule: Annotated[str, Field(pattern=r"^(cron|at)\(.+\)$")] = Field(
        description="In Application Auto Scaling's syntax: cron(0 7 ? * MON-FRI *), at(2026-11-27T06:00:00)."
    )
    min_capacity: PositiveInt
    timezone: str = Field(default="UTC", description="A name of the tz database: Europe/Berlin.")


class EndpointScalingRules(Document):
    """The part of autoscaling that the recommendation does not decide."""

    concurrent_requests_per_instance: PositiveFloat | None = Field(
        default=None,
        description="Adds target tracking on the requests in flight, reported every 10 s: it answers a spike in a "
        "minute, where invocations take several. By Little's law: invocations per second × latency in seconds. "
        "None: invocations only.",
    )
    scheduled_minimums: tuple[ScheduledMinimum, ...] = ()
    scale_out_cooldown_s: Cooldown = Field(
        default=300,
        description="An instance takes minutes to serve: by then the larger fleet's metric shows if one more is due.",
    )
    scale_in_cooldown_s: Cooldown = Field(
        default=600,
        description="Longer than the dip between two waves: an instance too many costs cents, one too few the "
        "objective.",
    )
    scale_in: bool = Field(default=True, description="False: autoscaling only adds instances.")


class NewVpc(Document):
    """A VPC of the endpoint's own: private subnets without a way to the internet, endpoints for S3, ECR and logs."""

    kind: Literal["new-vpc"]
    zone_ids: Annotated[tuple[Annotated[str, Field(pattern=r"^[a-z0-9]+-az\d$")], ...], Field(min_length=2)] = Field(
        description="A subnet in each: use1-az4. Ids, since a zone's name differs from account to account."
    )


class ExistingVpc(Document):
    """Subnets that are there, with a way to S3, ECR and CloudWatch Logs."""

    kind: Literal["existing-vpc"]
    subnet_ids: Annotated[tuple[Annotated[str, Field(pattern=r"^subnet-[0-9a-f]+$")], ...], Field(min_length=2)]
    security_group_ids: Annotated[tuple[Annotated[str, Field(pattern=r"^sg-[0-9a-f]+$")], ...], Field(min_length=1)]


EndpointNetwork = Annotated[NewVpc | ExistingVpc, Field(discriminator="kind")]


class DataCapture(Document):
    """A share of requests and answers, kept in a bucket of the stack."""

    percent: Annotated[int, Field(ge=1, le=100)]
    keep_days: PositiveInt = 30


class Shadow(Document):
    """Another build of this workload that gets a copy of the traffic; its answers are discarded."""

    target: str = Field(description="The target or variant that is tried.")
    instance_type: InstanceType
    instance_count: PositiveInt = 1
    percent: Annotated[int, Field(ge=1, le=100)] = Field(default=100, description="Share of requests that is copied.")
    image_uri: EcrImage | None = Field(
        default=None, description="Its own image; hosting.image_uri is the other's. None: ours of that version."
    )


class SageMakerEndpointHosting(Document):
    """A real-time endpoint."""

    kind: Literal["sagemaker-endpoint"]
    target: Annotated[str, Field(description="The target or variant that is deployed.")]
    triton_version: Annotated[str, Field(pattern=r"^\d\d\.\d\d$")] | None = Field(
        default=None,
        description=f"Tag of the SageMaker Triton image, yy.mm. Default: {GPU_DEFAULT} on GPUs, which starts with the "
        f"driver of every GPU host, and {CPU_DEFAULT} on CPUs.",
    )
    image_uri: str | None = Field(
        default=None,
        description="Image to use instead of the project's own, which containers/ builds on SageMaker's Triton image. "
        "Unless its tag says so, triton_version is the release of Triton in it.",
    )
    fallback_instance_types: Annotated[tuple[InstanceType, ...], Field(max_length=4)] = Field(
        default=(),
        description="Tried in this order where the chosen type has no capacity: ml.g4dn.xlarge for a g5. Autoscaling "
        "keeps the chosen type's target, so a slower one may miss the objective.",
    )
    min_instances_in_production: PositiveInt = Field(
        default=2, description="SageMaker spreads two or more over zones. 1 accepts to be down with a zone."
    )
    update: EndpointUpdate = Field(
        default=AllAtOnce(strategy="all-at-once"),
        description="How a production fleet is replaced. Alarms on latency and errors roll it back.",
    )
    scaling: EndpointScalingRules = EndpointScalingRules()
    network: EndpointNetwork | None = Field(default=None, description="None: no VPC; the container has no network.")
    kms_key_arn: KeyArn | None = Field(
        default=None,
        description="Encrypts volumes and captured data; its policy lets IAM decide. What alarms say then gets a key "
        "that the stack makes. None: keys of AWS's own, which cost nothing.",
    )
    data_capture: DataCapture | None = Field(default=None, description="None keeps nothing.")
    shadow: Shadow | None = Field(default=None, description="None copies no traffic.")

    @field_validator("triton_version", mode="before")
    @classmethod
    def _number_is_a_tag(cls, version: object) -> object:
        """TOML and --set read 24.09 without quotes as a number."""
        return f"{version:05.2f}" if isinstance(version, float) else version

    def triton_on(self, instance_type: str, image_uri: str | None = None) -> str | None:
        """Returns the version of Triton in the project's image on this type, or in the user's own `image_uri`.

        None: nothing names the version of that image.
        """
        own = version_in(image_uri or "")
        return own or self.triton_version or (None if image_uri else default_version(instance_type))

    @model_validator(mode="after")
    def _a_fleet_can_be_split(self) -> Self:
        if self.update.strategy != "all-at-once" and self.min_instances_in_production < 2:
            raise ValueError(
                f"update.strategy: {self.update.strategy} moves at most half of the fleet at a time, and "
                "min_instances_in_production 1 may leave one instance. Raise it to 2 or more, or choose all-at-once."
            )
        return self


Hosted = Annotated[str, Field(description="The target or variant that is deployed.")]


class ExistingNetwork(Document):
    """A network that is there already: private subnets that reach ECR, S3, CloudWatch Logs and ECS."""

    id: Annotated[str, Field(pattern=r"^vpc-[0-9a-f]+$")]
    cidr: Cidr = Field(description="The VPC's addresses, which may call the service.")
    subnet_ids: Annotated[tuple[Annotated[str, Field(pattern=r"^subnet-[0-9a-f]+$")], ...], Field(min_length=1)]
    availability_zones: tuple[str, ...] = Field(description="The zone of each subnet, in the same order.")

    @model_validator(mode="after")
    def _each_subnet_has_its_zone(self) -> Self:
        if len(self.subnet_ids) != len(self.availability_zones):
            raise ValueError(
                f"availability_zones: got {len(self.availability_zones)} for {len(self.subnet_ids)} subnet_ids; "
                "name the zone of each subnet, in the same order."
            )
        if len(set(self.availability_zones)) < len(self.availability_zones):
            raise ValueError(
                f"availability_zones: got {', '.join(self.availability_zones)}, and one twice. Name one subnet of each "
                "zone, and leave the others out."
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

    @model_validator(mode="after")
    def _named_zones_are_in_the_vpc(self) -> Self:
        has = self.vpc.availability_zones if self.vpc else self.availability_zones
        if missing := [zone for zone in self.availability_zones if zone not in has]:
            raise ValueError(
                f"availability_zones: got {', '.join(missing)}, where vpc has no subnet. It has some in "
                f"{', '.join(has)}. Name zones of these, or add a subnet to vpc.subnet_ids."
            )
        return self


class Tls(Document):
    """TLS that the load balancer ends. Tasks get plain TCP."""

    certificate_arn: CertificateArn = Field(description="A certificate in AWS Certificate Manager, in the same region.")
    domain_name: Annotated[str, Field(pattern=r"^([a-z0-9-]+\.)+[a-z0-9-]+$")] = Field(
        description="A name of the certificate, by which callers reach the service. In the shared network the stack "
        "makes its DNS record; in `vpc`, make one that points to the load balancer."
    )


class EcsServiceHosting(_OnEc2):
    """A service on EC2 instances behind a network load balancer."""

    kind: Literal["ecs-service"]
    target: Hosted
    caller_cidrs: tuple[Cidr, ...] = Field(
        default=(),
        description="More addresses that may call the service: of a peered VPC, or beyond a transit gateway.",
    )
    allowed_principals: tuple[PrincipalArn, ...] = Field(
        default=(),
        description="Accounts (arn:aws:iam::123456789012:root), roles or users that may create an interface endpoint "
        "to the service in their VPC. Empty: no endpoint service.",
    )
    tls: Tls | None = Field(default=None, description="None: plain TCP.")


class ScheduledBatchHosting(_OnEc2):
    """A scheduled batch on EC2 instances."""

    kind: Literal["scheduled-batch"]
    target: Hosted
    schedule: AtMostDaily = Field(description="In EventBridge's syntax: cron(0 2 * * ? *), in UTC; at most once a day.")
    shards: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1,
        description="Instances at work at once, until recommendation.json says how many; each answers its share of the "
        "rows.",
    )
    deadline_hours: Annotated[int, Field(ge=1, le=23)] = Field(
        default=6, description="A run that takes longer is stopped, and an alarm says so."
    )
    output_days: PositiveInt = Field(
        default=90, description="Days until answers expire. A run for the same day writes them again from its input."
    )
    max_bad_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.01, description="A run with a larger share of rows that cannot be answered has failed."
    )

    @property
    def daily(self) -> bool:
        return self.schedule == "rate(1 day)" or self.schedule.endswith((" * * ? *)", " ? * * *)"))


Hosting = Annotated[SageMakerEndpointHosting | EcsServiceHosting | ScheduledBatchHosting, Field(discriminator="kind")]
