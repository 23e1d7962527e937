"""`[traffic.NAME]` and `[recommender]` of workload.toml: the load of a test, and what the test may vary."""

from typing import Annotated, Literal

from pydantic import Field

from workloads.document import Document
from workloads.endpoint_hosting import KeyArn

PositiveInt = Annotated[int, Field(ge=1)]
ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
ParameterValue = Annotated[str, Field(max_length=128)]


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


class Recommender(Document):
    """The properties that a job varies besides the instance type, and what the stack's roles may do for a test."""

    environment: Annotated[
        dict[ParameterName, Annotated[tuple[ParameterValue, ...], Field(min_length=1, max_length=3)]],
        Field(
            max_length=5,
            description="Environment variables of the container, each with one to three values. An advanced job "
            "tests every instance type with every combination of them. Without any, it is tested as it is deployed.",
        ),
    ] = {}
    kms_key_arn: KeyArn | None = Field(
        default=None,
        description="The KMS key that `--kms-key` may name with the stack's roles, which get what they need of it; the "
        "key's own policy has to leave that to IAM. None: they may use no key.",
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
