"""Evidence sized for a demand: the candidates, and the document that `size --json` prints. Pure."""

from collections.abc import Sequence
from typing import Any

from inference_recommender.sizing.candidates import candidate
from inference_recommender.sizing.evidence import Evidence
from inference_recommender.sizing.fleet import Demand
from inference_recommender.sizing.prices import Price, price, price_elsewhere
from workloads import Candidate, Sizing


def sized(evidence: Evidence, demand: Demand, sizing: Sizing, region: str | None) -> tuple[Candidate, ...]:
    """All that was measured, judged and sized. Prices are the job's, unless another `region` is asked for."""

    def priced(instance_type: str, reported: float | None) -> Price:
        if region and evidence.region and region != evidence.region:
            return price_elsewhere(instance_type, region, evidence.region)
        return price(instance_type, region or evidence.region, reported)

    found = (
        candidate(one, demand, sizing, priced(one.instance_type, one.price_per_hour_usd), evidence.job_limit_per_minute)
        for one in evidence.measured
    )
    return tuple(_with_doubt(one, demand, evidence) for one in found)


def _with_doubt(one: Candidate, demand: Demand, evidence: Evidence) -> Candidate:
    """Says where the latency measured is not of the percentile asked for."""
    asked, has = demand.percentile, evidence.percentile
    if demand.model_latency_ms is None or one.model_latency_ms is None or None in (asked, has) or asked == has:
        return one
    return one.model_copy(update={"reason": f"{one.reason} The job measured {has}, not {asked}."})


def document(candidates: Sequence[Candidate], chosen: Candidate | None) -> dict[str, Any]:
    """The candidates and the chosen one, ready for JSON."""
    return {"candidates": [_plain(one) for one in candidates], "recommended": _plain(chosen) if chosen else None}


def _plain(one: Candidate) -> dict[str, Any]:
    return {
        "instance_type": one.instance_type,
        "variant": one.variant,
        "environment": one.environment,
        "max_invocations_per_minute": one.max_invocations_per_minute,
        "model_latency_ms": one.model_latency_ms,
        "instance_count": one.instance_count,
        "instance_count_parts": one.instance_count_parts,
        "cost_per_hour_usd": one.cost_per_hour_usd,
        "cost_per_million_invocations_usd": one.cost_per_million_invocations_usd,
        "meets_objective": one.meets_objective,
        "reason": f"{one.reason} Price: {one.cost_reason}",
    }
