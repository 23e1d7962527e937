"""The loads of a proof: the share of each instance at the peak, and after the loss of an instance or a zone. Pure.

peak             peak / n for each instance, n the recommended instance count
instance-lost    peak / (n - lost), lost being the spare instances of [sizing], or 1
zone-lost        peak / (n - ceil(n / zones)), if [sizing] has zones and that loss is larger
"""

import math
from dataclasses import dataclass
from typing import Literal

from workloads import Candidate, LatencyObjective, Sizing


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    name: Literal["peak", "instance-lost", "zone-lost"]
    instances_left: int
    """The number of the recommended fleet's instances that are left."""
    per_instance: float | None
    """Invocations per minute of each instance; None if no instance is left."""
    required: bool
    """Whether the fleet is sized for this load: the peak always, a loss if [sizing] asks for it."""
    within_capacity: bool
    """Whether the rate is within the lower bound of the recommended capacity."""


def loads(recommended: Candidate, objective: LatencyObjective, sizing: Sizing) -> tuple[Load, Load]:
    """Returns the load at the peak and the one after a loss. `recommended` must have an instance count."""
    assert recommended.instance_count is not None
    peak, count = objective.peak_invocations_per_minute, recommended.instance_count
    of_a_zone = math.ceil(count / sizing.availability_zones) if sizing.availability_zones else 0
    single = max(sizing.spare_instances, 1)
    left = max(count - max(of_a_zone, single), 0)
    after_loss = peak / left if left else None
    return (
        Load(name="peak", instances_left=count, per_instance=peak / count, required=True, within_capacity=True),
        Load(
            name="zone-lost" if of_a_zone >= single else "instance-lost",
            instances_left=left,
            per_instance=after_loss,
            required=bool(sizing.spare_instances or sizing.availability_zones),
            within_capacity=after_loss is not None and after_loss <= capacity_lower_bound(recommended),
        ),
    )


def capacity_lower_bound(recommended: Candidate) -> float:
    """Returns the lower end of the capacity's interval, in invocations per minute; without an interval the capacity
    itself, or 0 if it is unknown.
    """
    low, _ = recommended.max_invocations_interval or (recommended.max_invocations_per_minute or 0.0, None)
    return low
