"""From measurements to candidates: each judged by the demand, sized as a fleet and priced. Pure arithmetic.

    cost per hour        = instance count · price of an instance
    cost per million     = cost per hour / (peak · 60) · 10⁶

How the instance count comes about is in `fleet`.
"""

import math
from collections.abc import Iterable

from inference_recommender.measurement import Measurement
from inference_recommender.sizing.fleet import Demand, fleet
from inference_recommender.sizing.prices import Price
from workloads import Candidate, Sizing

SERVERLESS = "serverless"
"""A measurement's instance type where the endpoint had none."""


def cost_per_million_usd(cost_per_hour_usd: float, invocations_per_minute: float) -> float:
    return cost_per_hour_usd / (invocations_per_minute * 60) * 1e6


def candidate(
    measured: Measurement, demand: Demand, sizing: Sizing, price: Price, job_limit_per_minute: int | None
) -> Candidate:
    """One tested configuration, judged and sized. One that misses the objective is not sized.

    `job_limit_per_minute` is the MaxInvocations at which the job would stop, if any: a capacity found there is a
    lower bound.
    """
    meets, reason = _verdict(measured, demand)
    if meets and job_limit_per_minute and (measured.max_invocations_per_minute or 0) >= job_limit_per_minute:
        reason += f" The job stopped at its limit of {job_limit_per_minute:,}: an instance may bear more."
    if measured.model_latency_unit == "µs":
        reason += " The job gave it in µs."
    sized = fleet(measured.max_invocations_per_minute or 0, demand, sizing) if meets else None
    per_hour = sized.instance_count * price.usd_per_hour if sized and price.usd_per_hour is not None else None
    return Candidate(
        instance_type=measured.instance_type,
        variant=measured.variant,
        environment=measured.environment,
        max_invocations_per_minute=measured.max_invocations_per_minute,
        max_invocations_interval=measured.max_invocations_interval,
        model_latency_ms=measured.model_latency_ms,
        model_latency_percentiles_ms=measured.percentiles_ms,
        cpu_utilization_percent=measured.cpu_utilization_percent,
        memory_utilization_percent=measured.memory_utilization_percent,
        instance_count=sized.instance_count if sized else None,
        instance_count_parts=sized.parts if sized else {},
        warm_up_s=measured.warm_up_s,
        client_latency_ms=measured.client_latency_ms,
        client_latency_from_intended_ms=measured.client_latency_from_intended_ms,
        autoscaling=sized.autoscaling if sized else None,
        cost_per_hour_usd=per_hour,
        cost_per_million_invocations_usd=(
            cost_per_million_usd(per_hour, demand.peak_invocations_per_minute) if per_hour is not None else None
        ),
        cost_reason=price.reason,
        meets_objective=meets,
        reason=reason,
    )


def cheapest(candidates: Iterable[Candidate]) -> Candidate | None:
    """Of those that meet the objective: lowest cost per hour, unknown costs last, then the fewest instances,
    then the most that one of them bears."""
    return min(
        (candidate for candidate in candidates if candidate.meets_objective),
        key=lambda found: (
            math.inf if found.cost_per_hour_usd is None else found.cost_per_hour_usd,
            found.instance_count or 0,
            -(found.max_invocations_per_minute or 0),
        ),
        default=None,
    )


def _verdict(measured: Measurement, demand: Demand) -> tuple[bool, str]:
    """Whether the demand's limit is kept, and in a sentence why or why not."""
    rate, latency, limit = measured.max_invocations_per_minute, measured.model_latency_ms, demand.model_latency_ms
    asked = " ".join(word for word in (demand.percentile, f"model latency ≤ {limit or 0:g} ms") if word)
    if measured.failure_reason:
        return False, measured.failure_reason
    if measured.instance_type == SERVERLESS:
        return False, "Serverless: there are no instances to count."
    if rate is None:
        return False, "The job reported no capacity for it."
    if rate <= 0:
        return False, f"The job reported {rate:g} invocations/min for it: it bore no load."
    found = f"{rate:,.0f} invocations/min" if latency is None else f"{latency:g} ms at {rate:,.0f} invocations/min"
    if limit is None:
        return True, f"Latency is not judged, for no objective was given: {found}."
    if latency is None:
        return False, f"The job reported no model latency for it, so nothing shows that it keeps {asked}."
    kept = latency <= limit
    return kept, f"{'Keeps' if kept else 'Misses'} {asked}: {found}."
