"""The values of a simulation: a scaling policy, how long its parts take, and the load. Pure.

Where a figure of `Timing` is AWS's, its comment names the source. The others are not documented: they are assumptions,
which the command prints and takes from options.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from inference_recommender.capacity.statistics import Floats
from workloads.endpoint_hosting import ScheduledMinimum

Hosts = Literal["sagemaker", "ecs"]
MINUTE_S = 60
HIGH_RESOLUTION_S = 10
FIRST_MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
"""When a shape begins: its days are those of a calendar, so that schedules apply."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """Target tracking of a fleet; `min_capacity` equal to `max_capacity` is a fleet that never changes."""

    target_invocations_per_instance: float
    """Per minute."""
    min_capacity: int
    max_capacity: int
    scale_out_cooldown_s: int = 300
    scale_in_cooldown_s: int = 600
    scale_in: bool = True
    concurrent_requests_per_instance: float | None = None
    """Target of a second policy, on a metric that comes every 10 s; None: there is none."""
    scheduled_minimums: tuple[ScheduledMinimum, ...] = ()

    @property
    def step_s(self) -> int:
        """Seconds of a simulated step: the shortest period of a metric that the policy reads."""
        return MINUTE_S if self.concurrent_requests_per_instance is None else HIGH_RESOLUTION_S

    def document(self) -> dict[str, Any]:
        """Returns the policy as JSON has it."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**plain, "scheduled_minimums": [each.model_dump() for each in self.scheduled_minimums]}


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Seconds that the parts of scaling take."""

    hosts: Hosts = "sagemaker"
    provisioning_s: float = 300.0
    """Median from the request for an instance to its container's start."""
    provisioning_spread: float = 0.2
    """Standard deviation of that time's logarithm, drawn for each instance."""
    model_load_s: float = 60.0
    """From the container's start to its first answer within the objective."""
    removal_s: float = 120.0
    """Until a removed instance is gone and no longer paid for."""
    replacement_s: float = 60.0
    """Until an instance that failed is noticed."""
    metric_delay_s: int = 120
    """Until an alarm sees a datapoint of a minute. AWS measured 363 s from the load to the scaling of an ECS service
    whose alarm has three datapoints of a minute: https://aws.amazon.com/blogs/aws/
    amazon-ecs-introduces-new-high-resolution-metrics-for-faster-service-auto-scaling/"""
    high_resolution_delay_s: int = 20
    """The same of a metric of 10 s; there AWS measured 86 s with three datapoints of 20 s."""
    instance_warm_up_s: float = 300.0
    """The capacity provider's: it starts no further instance while one is younger. `stacks/ecs/fleet.py` sets it."""
    idle_s: float = 900.0
    """How long an instance of a capacity provider has no task before it goes: 15 datapoints of a minute."""
    known_by: Mapping[str, str] = field(default_factory=dict)
    """Where a time is from that is not assumed, by its name here."""

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """An availability zone fails: one in `zones` of the instances that serve is gone at once."""

    at_s: float
    zones: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Callers:
    """Callers that give up on an answer after `timeout_s` and send the request again, at most `retries` times."""

    timeout_s: float
    retries: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Traffic of one seed: mean rates per second, an entry for each step, and what goes wrong meanwhile."""

    start: datetime
    step_s: int
    rates: Floats
    losses: tuple[Loss, ...] = ()
    callers: Callers | None = None

    @property
    def minutes(self) -> float:
        return len(self.rates) * self.step_s / 60

    @property
    def mean_per_minute(self) -> float:
        return float(self.rates.mean()) * MINUTE_S

    @property
    def peak_per_minute(self) -> float:
        """Requests of the busiest minute."""
        return float(self.rates.reshape(-1, MINUTE_S // self.step_s).mean(axis=1).max()) * MINUTE_S


class Traffic(Protocol):
    """A trace or a shape."""

    @property
    def name(self) -> str: ...

    @property
    def sha256(self) -> str:
        """Tells this traffic from any other."""

    def load(self, seed: int) -> Load:
        """Returns the traffic of a seed; a recorded trace is the same for every seed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The figures of a policy with the traffic of a seed."""

    seed: int
    minutes_over_objective: float
    requests: float
    late: float
    """Requests that were not answered within the limit, those dropped included."""
    dropped: float
    """Requests that were never answered."""
    instance_hours: float
    lower_bound_hours: float
    """Those of the fewest instances that keep the objective in every step, had the future been known."""
    most_instances: int
    """Most that were paid for at once."""
    highest_rate: float
    """Highest rate per second and instance that serves."""
    minutes_extrapolated: float
    """Minutes in which that rate was above all that was measured."""
    timeline: Mapping[str, Floats] = field(default_factory=dict)
    """An array per column, an entry per step; empty where it was not asked for."""

    @property
    def late_share(self) -> float:
        return self.late / self.requests if self.requests else 0.0
