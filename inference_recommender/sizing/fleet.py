"""The instance count for a load with headroom, the bounds of its autoscaling, and cost per million. Pure.

docs/capacity.md has the formulas. The instances left after a failure still sustain burst factor and headroom. A zone
and single instances are not assumed to fail together. Numbers count as they are written (0.2 is a fifth), so an exact
division needs no extra instance.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from workloads import POISSON, ArrivalProcess, Autoscaling, LatencyObjective, Sizing

ROUNDING = Fraction(1, 10**13)
"""A ratio this close above a whole number is that number: a third of a capacity loses digits as a float."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """A fleet's load per minute and its latency limit. Without a limit latency is not judged.

    `percentile` ("P99") belongs to the limit; it is None where the evidence has one figure of unknown percentile.
    """

    peak_invocations_per_minute: float
    trough_invocations_per_minute: float = 0
    percentile: str | None = None
    model_latency_ms: float | None = None
    arrivals: ArrivalProcess = POISSON

    @classmethod
    def of(cls, objective: LatencyObjective) -> "Demand":
        return cls(
            peak_invocations_per_minute=objective.peak_invocations_per_minute,
            trough_invocations_per_minute=objective.trough_invocations_per_minute,
            percentile=objective.percentile,
            model_latency_ms=objective.model_latency_ms,
            arrivals=objective.arrivals,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SizedFleet:
    instance_count: int
    parts: dict[str, int]
    """The instances that the peak needs, then those that each key of [sizing] added; their sum is the count."""
    autoscaling: Autoscaling


def cost_per_million_usd(cost_per_hour_usd: float, invocations_per_minute: float) -> float:
    return cost_per_hour_usd / (invocations_per_minute * 60) * 1e6


def fleet(max_invocations_per_minute: float, demand: Demand, sizing: Sizing) -> SizedFleet:
    """Sizes a fleet for the demand's peak from instances that each sustain `max_invocations_per_minute` (> 0)."""
    rate = _fraction(max_invocations_per_minute)
    target = rate * _fraction(sizing.safety_factor)
    peak, trough = _fraction(demand.peak_invocations_per_minute), _fraction(demand.trough_invocations_per_minute)
    parts = _parts(peak, rate, sizing)
    count = sum(parts.values())
    return SizedFleet(
        instance_count=count,
        parts=parts,
        autoscaling=Autoscaling(
            min_capacity=sum(_parts(trough, target, sizing).values()),
            max_capacity=max(sum(_parts(peak, target, sizing).values()), count),
            target_invocations_per_instance=round(float(target), 3) or float(target),
        ),
    )


def _parts(peak: Fraction, rate: Fraction, sizing: Sizing) -> dict[str, int]:
    """Returns the instances of capacity `rate` for the peak, and those that each kind of headroom adds, in order."""
    burst = peak * _fraction(sizing.burst_factor)
    bare, bursting = _instances(peak, rate), _instances(burst, rate)
    needed = _instances(burst * (1 + _fraction(sizing.headroom)), rate)
    spared = needed + sizing.spare_instances
    # The fewest instances of which `needed` are left when the fullest zone fails.
    zones = sizing.availability_zones
    zoned = max(spared, needed + math.ceil(Fraction(needed, zones - 1))) if zones else spared
    return {
        "peak": bare,
        "burst_factor": bursting - bare,
        "headroom": needed - bursting,
        "spare_instances": spared - needed,
        "availability_zones": zoned - spared,
        "min_instances": max(sizing.min_instances - zoned, 0),
    }


def _instances(load: Fraction, rate: Fraction) -> int:
    """Returns at least 1: a fleet without load still has an instance."""
    return max(math.ceil(load / rate * (1 - ROUNDING)), 1)


def _fraction(number: float) -> Fraction:
    """Returns the decimal number: Fraction(0.1) is not a tenth, Fraction("0.1") is."""
    return Fraction(repr(float(number)))
