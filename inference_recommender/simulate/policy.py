"""The values of a simulation: scaling policy, what it observes, timing and traffic. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, Protocol

import numpy as np

from inference_recommender.capacity.statistics import Floats
from inference_recommender.simulate.tracking import MINUTE_S
from workloads import ScheduledMinimum

FIRST_MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
"""The start of a shape: its days are those of a calendar, so that schedules apply."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """Target tracking of a fleet, or a function. With equal bounds the fleet never changes."""

    target_invocations_per_instance: float
    """Per minute."""
    min_capacity: int
    max_capacity: int
    scale_out_cooldown_s: int = 300
    scale_in_cooldown_s: int = 600
    """The defaults are those of `stacks/ecs/scaling.py`."""
    scale_in: bool = True
    scheduled_minimums: tuple[ScheduledMinimum, ...] = ()
    function: str = ""
    """A name of `functions.py` or FILE.py:NAME, which decides instead of target tracking. It has no cooldowns."""

    @property
    def bounds_text(self) -> str:
        """Returns instances and target, such as "2 to 20, 15,000/min each"."""
        if self.function:
            return f"{self.min_capacity} to {self.max_capacity}, {self.function}"
        if self.min_capacity == self.max_capacity:
            return f"{self.min_capacity} instance{'s' * (self.min_capacity != 1)}"
        return f"{self.min_capacity} to {self.max_capacity}, {self.target_invocations_per_instance:,.0f}/min each"

    @property
    def text(self) -> str:
        """Returns the policy in words."""
        cooldowns = (
            ""
            if self.function
            else f"cooldowns of {self.scale_out_cooldown_s} s out and {self.scale_in_cooldown_s} s in"
        )
        schedule = "; ".join(f"{each.min_capacity} at {each.schedule}" for each in self.scheduled_minimums)
        return ", ".join(filter(None, (self.bounds_text, cooldowns, schedule and f"at least {schedule}")))


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """The knowledge of a policy function at the end of a minute."""

    time: datetime
    invocations: Floats
    """In each minute, the oldest first; at least one. The last one is the newest that CloudWatch shows."""
    serving: int
    desired: int
    capacity: float
    """Invocations per minute that an instance answers within the objective."""
    target: float
    """The recommended invocations per minute and instance."""
    start_s: float
    """Seconds from the request for an instance to its first answer."""
    delay_s: float
    """Seconds until CloudWatch shows a minute."""


PolicyFunction = Callable[[Observed], int]
"""Returns the desired number of instances. It is called every minute in which the fleet accepts a change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Seconds that the parts of scaling take. AWS documents none of them."""

    hosts: Literal["sagemaker", "ecs"] = "sagemaker"
    provisioning_s: float = 300.0
    """Median from the request for an instance to its container's start."""
    provisioning_spread: float = 0.2
    """Standard deviation of that time's logarithm."""
    model_load_s: float = 60.0
    """From the container's start to its first answer within the objective."""
    removal_s: float = 120.0
    """Until a removed instance is no longer paid for."""
    replacement_s: float = 60.0
    """Until a failed instance is detected."""
    metric_delay_s: int = 120
    """Until an alarm sees a datapoint of a minute. AWS once measured 363 s from a load to the scaling."""
    instance_warm_up_s: float = 300.0
    """The capacity provider starts no instance while another one is younger; `stacks/ecs/fleet.py` sets it."""
    idle_s: float = 900.0
    """Until an instance of a capacity provider without a task goes: 15 datapoints of a minute."""
    known_by: Mapping[str, str] = field(default_factory=dict)
    """Field → the source of its value, unless it is assumed."""

    @property
    def start_s(self) -> float:
        """Returns the median from the request for an instance to its first answer."""
        return self.provisioning_s + self.model_load_s


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneLoss:
    """An availability zone fails: one in `zones` of the serving instances is gone at once."""

    at_s: float
    zones: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TrafficLoad:
    """Traffic of one seed: mean requests per second in each minute, and failures."""

    start: datetime
    rates: Floats
    losses: tuple[ZoneLoss, ...] = ()
    history: Floats = field(default_factory=lambda: np.empty(0))
    """Requests per second in each minute before the start, which a policy function knows."""

    @property
    def mean_per_minute(self) -> float:
        return float(self.rates.mean()) * MINUTE_S

    @property
    def peak_per_minute(self) -> float:
        return float(self.rates.max()) * MINUTE_S


class TrafficSource(Protocol):
    """A recorded trace or a shape."""

    @property
    def name(self) -> str: ...

    @property
    def sha256(self) -> str: ...

    def load(self, seed: int) -> TrafficLoad:
        """Returns the traffic of a seed. A recorded trace is the same for every seed."""
