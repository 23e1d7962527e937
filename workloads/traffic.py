"""`[traffic.NAME]` of workload.toml: the load of a test, in Inference Recommender's terms."""

from typing import Annotated, Literal

from pydantic import Field

from workloads.document import Document

PositiveInt = Annotated[int, Field(ge=1)]


class Phase(Document):
    initial_users: PositiveInt
    spawn_rate_per_minute: Annotated[int, Field(ge=0)] = 0
    duration_s: PositiveInt


class StoppingConditions(Document):
    """When a job ends early. The latency limit is the objective's; it is not repeated here."""

    max_invocations_per_minute: Annotated[int, Field(ge=1, le=30_000)] | None = Field(
        default=None, description="None leaves it out of the request; the service takes 30,000 at most."
    )
    flat_invocations: Literal["Stop", "Continue"] = "Stop"


class PhasedTraffic(Document):
    type: Literal["phases"]
    phases: tuple[Phase, ...] = Field(min_length=1)
    stop: StoppingConditions = StoppingConditions()

    @property
    def duration_s(self) -> int:
        return sum(phase.duration_s for phase in self.phases)


class StairTraffic(Document):
    type: Literal["stairs"]
    users_per_step: Annotated[int, Field(ge=1, le=3)]
    steps: PositiveInt
    duration_s: PositiveInt = Field(description="Of the whole staircase.")
    stop: StoppingConditions = StoppingConditions()


Traffic = Annotated[PhasedTraffic | StairTraffic, Field(discriminator="type")]
