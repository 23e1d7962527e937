"""From one instance's capacity to a fleet: instance count, autoscaling and cost. Pure arithmetic.

    instance count       = ceil(peak · (1 + headroom) / max invocations)
    target value         = max invocations · safety factor      (per minute and instance; AWS: max_rps · factor · 60)
    max capacity         = ceil(peak · (1 + headroom) / target value)
    min capacity         = ceil(trough · (1 + headroom) / target value), at least min_instances
    cost per million     = cost per hour / (peak · 60) · 10⁶

Target tracking holds each instance at the target value, so that max capacity follows from it and not from what an
instance can bear: with a smaller ceiling the fleet would stop growing before it reaches the load it was sized for.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from inference_recommender.measurement import Measurement
from inference_recommender.prices import Price
from workloads import Autoscaling, Candidate, LatencyObjective, Sizing


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    instance_count: int
    autoscaling: Autoscaling


def fleet(max_invocations_per_minute: float, objective: LatencyObjective, sizing: Sizing) -> Fleet:
    """The fleet for the objective's peak, of instances that each bear `max_invocations_per_minute` (> 0)."""
    target = max_invocations_per_minute * sizing.safety_factor
    peak = objective.peak_invocations_per_minute * (1 + sizing.headroom)
    trough = objective.trough_invocations_per_minute * (1 + sizing.headroom)
    count = max(_ceil(peak / max_invocations_per_minute), sizing.min_instances)
    return Fleet(
        instance_count=count,
        autoscaling=Autoscaling(
            min_capacity=max(_ceil(trough / target), sizing.min_instances),
            max_capacity=max(_ceil(peak / target), count),
            target_invocations_per_instance=round(target, 3),
        ),
    )


def cost_per_million_usd(cost_per_hour_usd: float, invocations_per_minute: float) -> float:
    return cost_per_hour_usd / (invocations_per_minute * 60) * 1e6


def candidate(
    measured: Measurement, objective: LatencyObjective, sizing: Sizing, price: Price, job_limit_per_minute: int | None
) -> Candidate:
    """One tested configuration, judged and sized. One that misses the objective is not sized.

    `job_limit_per_minute` is the MaxInvocations at which the job would stop, if any: a capacity found there is a
    lower bound.
    """
    meets, reason = _verdict(measured, objective)
    if meets and job_limit_per_minute and (measured.max_invocations_per_minute or 0) >= job_limit_per_minute:
        reason += f" The job stopped at its limit of {job_limit_per_minute:,}: an instance may bear more."
    sized = fleet(measured.max_invocations_per_minute or 0, objective, sizing) if meets else None
    per_hour = sized.instance_count * price.usd_per_hour if sized and price.usd_per_hour is not None else None
    return Candidate(
        instance_type=measured.instance_type,
        environment=measured.environment,
        max_invocations_per_minute=measured.max_invocations_per_minute,
        model_latency_ms=measured.model_latency_ms,
        model_latency_percentiles_ms=measured.percentiles_ms,
        cpu_utilization_percent=measured.cpu_utilization_percent,
        memory_utilization_percent=measured.memory_utilization_percent,
        instance_count=sized.instance_count if sized else None,
        autoscaling=sized.autoscaling if sized else None,
        cost_per_hour_usd=per_hour,
        cost_per_million_invocations_usd=(
            cost_per_million_usd(per_hour, objective.peak_invocations_per_minute) if per_hour is not None else None
        ),
        cost_reason=price.reason,
        meets_objective=meets,
        reason=reason,
    )


def cheapest(candidates: Iterable[Candidate]) -> Candidate | None:
    """Of those that meet the objective: lowest cost per hour, unknown costs last, then the fewest instances."""
    return min(
        (candidate for candidate in candidates if candidate.meets_objective),
        key=lambda found: (
            math.inf if found.cost_per_hour_usd is None else found.cost_per_hour_usd,
            found.instance_count or 0,
        ),
        default=None,
    )


def _verdict(measured: Measurement, objective: LatencyObjective) -> tuple[bool, str]:
    limit = f"{objective.percentile} model latency ≤ {objective.model_latency_ms:g} ms"
    if measured.failure_reason:
        return False, measured.failure_reason
    if not measured.max_invocations_per_minute or measured.model_latency_ms is None:
        return False, "The job reported no capacity for it."
    found = f"{measured.model_latency_ms:g} ms at {measured.max_invocations_per_minute:,.0f} invocations/min"
    if measured.model_latency_ms > objective.model_latency_ms:
        return False, f"Misses {limit}: {found}."
    return True, f"Keeps {limit}: {found}."


def _ceil(value: float) -> int:
    """Ceiling that takes 3.0000000000000004 for 3, as the sum of binary fractions it is."""
    return math.ceil(round(value, 9))
