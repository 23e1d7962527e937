"""The results of `size`: candidates from evidence and a demand, or a cost from a plain throughput and price. Pure.

cost per million = price per hour / (throughput · 3600) · 10⁶
saving           = 1 - cost per million / the baseline's
"""

from collections.abc import Sequence
from typing import Any

from inference_recommender.sizing.decision import candidate, cost_per_million_usd
from inference_recommender.sizing.evidence import Evidence
from inference_recommender.sizing.fleet import Demand
from inference_recommender.sizing.prices import Price, price, price_elsewhere
from workloads import Candidate, Sizing
from workloads.document import Document


def sized(evidence: Evidence, demand: Demand, sizing: Sizing, region: str | None) -> tuple[Candidate, ...]:
    """Judges and sizes every measurement. Prices are the job's, unless another `region` is asked for."""

    def priced(instance_type: str, reported: float | None) -> Price:
        if region and evidence.region and region != evidence.region:
            return price_elsewhere(instance_type, region, evidence.region)
        return price(instance_type, region or evidence.region, reported)

    return tuple(
        candidate(
            measurement,
            demand,
            sizing,
            priced(measurement.instance_type, measurement.price_per_hour_usd),
            evidence.job_limit_per_minute,
        )
        for measurement in evidence.measured
    )


def document(candidates: Sequence[Candidate], chosen: Candidate | None) -> dict[str, Any]:
    """Returns the document of `size --json`."""
    return {"candidates": [_plain(each) for each in candidates], "recommended": _plain(chosen) if chosen else None}


def _plain(candidate: Candidate) -> dict[str, Any]:
    return {
        "instance_type": candidate.instance_type,
        "variant": candidate.variant,
        "environment": candidate.environment,
        "max_invocations_per_minute": candidate.max_invocations_per_minute,
        "capacity_basis": candidate.capacity_basis,
        "model_latency_ms": candidate.model_latency_ms,
        "objective_latency_ms": candidate.objective_latency_ms,
        "instance_count": candidate.instance_count,
        "instance_count_parts": candidate.instance_count_parts,
        "cost_per_hour_usd": candidate.cost_per_hour_usd,
        "cost_per_million_invocations_usd": candidate.cost_per_million_invocations_usd,
        "meets_objective": candidate.meets_objective,
        "reason": f"{candidate.reason} Price: {candidate.cost_reason}",
    }


class PlainCost(Document):
    cost_per_million_invocations_usd: float
    baseline_cost_per_million_invocations_usd: float | None = None
    saving_percent: float | None = None
    """Negative where the baseline is cheaper."""
    throughput_ratio: float | None = None


def plain_cost(
    throughput_per_second: float, price_per_hour_usd: float, baseline: tuple[float, float] | None = None
) -> PlainCost:
    """Returns the cost of a million invocations; `baseline` is a throughput per second and a price per hour."""
    cost = cost_per_million_usd(price_per_hour_usd, throughput_per_second * 60)
    if baseline is None:
        return PlainCost(cost_per_million_invocations_usd=cost)
    other_throughput, other_price = baseline
    other = cost_per_million_usd(other_price, other_throughput * 60)
    return PlainCost(
        cost_per_million_invocations_usd=cost,
        baseline_cost_per_million_invocations_usd=other,
        saving_percent=(1 - cost / other) * 100,
        throughput_ratio=throughput_per_second / other_throughput,
    )
