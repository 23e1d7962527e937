"""`[traffic.NAME]`, `[recommender]` and `[published.NAME]` of workload.toml.

They are the load of a test, what the test may vary, and the tests of others that can be run again.
"""

from typing import Annotated, Literal

from pydantic import Field

from workloads.document import Document, PositiveInt
from workloads.hosting import KeyArn
from workloads.model import Checkpoint, ModelInput, Padding
from workloads.objective import Sizing
from workloads.target import InstanceType

ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
ParameterValue = Annotated[str, Field(max_length=128)]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+\.jsonl$")]


class Phase(Document):
    initial_users: PositiveInt
    spawn_rate_per_minute: Annotated[int, Field(ge=0)] = 0
    duration_s: PositiveInt


class StoppingConditions(Document):
    """The conditions that end a job early. The latency limit is the objective's and is not repeated here."""

    max_invocations_per_minute: Annotated[int, Field(ge=1, le=30_000)] | None = Field(
        default=None, description="None leaves it out of the request; the service takes 30,000 at most."
    )
    flat_invocations: Literal["Stop", "Continue"] = "Stop"


class PhasedTraffic(Document):
    """Phases of growing or constant load, in Inference Recommender's terms."""

    type: Literal["phases"]
    phases: tuple[Phase, ...] = Field(min_length=1)
    stop: StoppingConditions = StoppingConditions()

    @property
    def duration_s(self) -> int:
        return sum(phase.duration_s for phase in self.phases)


class StairTraffic(Document):
    """A load that grows by the same number of users in each step."""

    type: Literal["stairs"]
    users_per_step: Annotated[int, Field(ge=1, le=3)]
    steps: PositiveInt
    duration_s: PositiveInt = Field(description="Seconds of the whole staircase.")
    stop: StoppingConditions = StoppingConditions()


Traffic = Annotated[PhasedTraffic | StairTraffic, Field(discriminator="type")]


class SimulationSettings(Document):
    """Assumptions of `simulate`, in place of defaults and measured cold starts."""

    provisioning_s: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="From the request for an instance to its container's start. None: measured, or 300."
    )
    model_load_s: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="From there to the first answer within the objective. None: measured, or 60."
    )
    metric_delay_s: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Until an alarm sees a datapoint of a minute. None: 120."
    )
    tolerance_minutes: Annotated[float, Field(ge=0)] = Field(
        default=5.0, description="Tolerated minutes over the objective in a month."
    )
    confidence: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.99, description="Share of seeds that must be within the tolerance."
    )
    fill_gaps: Literal["zero", "last"] | None = Field(
        default=None,
        description="How missing lines of a trace are filled: zero if there was no traffic, last if the monitoring "
        "failed. None: a gap is an error.",
    )
    region: str | None = Field(default=None, description="Region of the prices if --from names a measurement.")


class Recommender(Document):
    """Facts of the account in which a workload is measured, and what a job varies besides the instance type."""

    environment: Annotated[
        dict[ParameterName, Annotated[tuple[ParameterValue, ...], Field(min_length=1, max_length=3)]],
        Field(
            max_length=5,
            description="Environment variables of the container, each with one to three values. An advanced job "
            "tests every instance type with every combination of them. Without any, it uses the deployed ones.",
        ),
    ] = {}
    kms_key_arn: KeyArn | None = Field(
        default=None,
        description="KMS key that encrypts the volumes and the output of tests. The stack's roles are granted its use; "
        "the key's own policy has to allow grants by IAM.",
    )
    model: str | None = Field(
        default=None, description="Name of the SageMaker model, or ARN of a model package. Default: the stack's model."
    )
    nearest_model_name: str | None = Field(
        default=None,
        description="Most similar model of SageMaker's ListModelMetadata. Default: BERT's architecture, if the "
        "checkpoint's name has it.",
    )
    role_arn: str | None = Field(default=None, description="Role of jobs and several generators. Default: the stack's.")
    bucket: str | None = Field(
        default=None, description="Bucket of payloads. Default: SageMaker's bucket of account and region."
    )
    subnets: tuple[str, ...] = Field(default=(), description="Subnets of test endpoints and generators.")
    security_groups: tuple[str, ...] = Field(default=(), description="Their security groups.")
    tags: dict[str, str] = Field(default={}, description="Tags of jobs and their endpoints, beside our own.")
    parallel_tests: int = Field(
        default=3, ge=1, le=10, description="Tests of an advanced job that run at once; each needs endpoint quota."
    )
    generators: int | None = Field(
        default=None, ge=1, description="Load generators, as one SageMaker Processing job. Default: this machine."
    )
    generator_type: str = Field(
        default="ml.c5.2xlarge",
        description="Instance type of each. A generator uses one core; the second is for the network.",
    )
    generator_image_uri: str | None = Field(default=None, description="Default: AWS's PyTorch image for CPUs.")
    request_timeout_s: float = Field(
        default=60.0, ge=0.1, le=3600, description="A request without an answer by then has failed."
    )
    images: dict[Literal["cpu", "gpu", "gpu-torch", "inf1", "inf2", "all"], str] = Field(
        default={},
        description="Container image of an experiment's models on each kind of hardware; gpu-torch for `cuda` targets. "
        "Default: the stack's, and for other hardware the project's own image that was pushed last.",
    )
    host_ami: str | None = Field(
        default=None,
        description="InferenceAmiVersion of an experiment's GPU instances. Default: what the image needs there.",
    )
    ignore_driver: bool = Field(
        default=False, description="Send a job also to hosts whose default GPU driver is known not to start the image."
    )
    load: Literal["sagemaker", "load-test"] | None = Field(
        default=None,
        description="Load of an experiment: Inference Recommender's jobs, or the project's generator on temporary "
        "endpoints. Default: load-test on instance types with drivers too old for a job, else sagemaker.",
    )
    managed_policy: bool = Field(
        default=False,
        description="Attach AmazonSageMakerFullAccess to the recommender's role, as AWS documents for a job: for a "
        "first run in an account, to tell a missing permission from another failure.",
    )
    prove: bool = Field(
        default=False,
        description="A release proves what it recommends, on beta's endpoint, and stops where it is missed or unclear.",
    )


class Published(Document):
    """An experiment of which others published the figures, with their model and their load.

    What it names stands in the place of the workload's own keys for `build --published` and `experiment --published`;
    deployed stacks do not change. Its builds have a folder of their own, so that the two are never taken for each
    other.
    """

    variants: tuple[str, ...] = Field(min_length=1, description="Names of [variants] or [targets].")
    baseline: str = Field(description="The variant to which speed-ups are told, on the same instance type.")
    instance_types: tuple[InstanceType, ...] = Field(min_length=1, max_length=10)
    traffic: str = Field(description="The name of a [traffic.NAME].")
    checkpoint: Checkpoint
    padding: Padding = "longest"
    truncation: bool = False
    inputs: tuple[ModelInput, ...] = Field(
        default=(), description="The tensors of the compiled model, in the place of [model]'s."
    )
    rows_per_invocation: PositiveInt = Field(default=1, description="Rows of a request, in place of [objective]'s.")
    rows: dict[str, PositiveInt] = Field(
        default={}, description="Rows of each request by variant, in the place of rows_per_invocation."
    )
    sizing: Sizing = Field(
        default=Sizing(headroom=0.0), description="In the place of [sizing]: a published fleet has no headroom."
    )
    payloads: FileName = Field(default="payloads.jsonl", description="The file of requests, in the workload's folder.")
