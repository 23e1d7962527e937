"""The loads under which a recommendation is proven: the share of each instance at the peak, and after a loss. Pure.

    peak             peak / n for each instance, n the recommended instance count
    instance-lost    peak / (n - lost), where the spare instances of [sizing] are lost, or one
    zone-lost        peak / (n - ceil(n / zones)), where [sizing] has zones and that loss is the larger

A fleet is sized for the peak, and for the loss that [sizing] asks for: `asked`. Any other loss is driven as well, and
decides only where it is missed although the recommendation says that an instance bears that rate: `claimed`.
"""

import math
from dataclasses import dataclass
from typing import Literal

from workloads import Candidate, LatencyObjective, Sizing


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    name: Literal["peak", "instance-lost", "zone-lost"]
    instances_left: int
    """The number of the recommended fleet's instances."""
    per_instance: float | None
    """Invocations per minute that each of them gets; None where none is left."""
    asked: bool
    """Whether the fleet was sized for it."""
    claimed: bool
    """Whether the recommendation is sure that an instance bears the rate: it is within the interval's low end."""


def loads(recommended: Candidate, objective: LatencyObjective, sizing: Sizing) -> tuple[Load, Load]:
    """Returns the load at the peak and the one after a loss. `recommended` must have an instance count."""
    assert recommended.instance_count is not None
    peak, count = objective.peak_invocations_per_minute, recommended.instance_count
    of_a_zone = math.ceil(count / sizing.availability_zones) if sizing.availability_zones else 0
    single = max(sizing.spare_instances, 1)
    left = max(count - max(of_a_zone, single), 0)
    after_loss = peak / left if left else None
    return (
        Load(name="peak", instances_left=count, per_instance=peak / count, asked=True, claimed=True),
        Load(
            name="zone-lost" if of_a_zone >= single else "instance-lost",
            instances_left=left,
            per_instance=after_loss,
            asked=bool(sizing.spare_instances or sizing.availability_zones),
            claimed=after_loss is not None and after_loss <= surely_borne(recommended),
        ),
    )


def surely_borne(recommended: Candidate) -> float:
    """Returns the rate per minute that the recommendation is sure an instance bears; 0 where it names none."""
    low, _ = recommended.max_invocations_interval or (recommended.max_invocations_per_minute or 0.0, None)
    return low
