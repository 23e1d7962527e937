"""Judges measurements, sizes and prices each as a fleet, and chooses the cheapest that meets the objective. Pure.

Every candidate with a rate is sized and priced, also those that miss the objective.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from inference_recommender.capacity.closed_loop import MAX_ERROR_SHARE
from inference_recommender.capacity.statistics import samples_needed
from inference_recommender.capacity.time_series import Series
from inference_recommender.measurement import Measurement
from inference_recommender.sizing.fleet import Demand, cost_per_million_usd, fleet
from inference_recommender.sizing.prices import Price, PriceList, job_price
from inference_recommender.sizing.verdict import is_contradicted, judge
from workloads import Candidate, LatencyObjective, PayloadLengths, Provenance, Recommendation, Sizing, Workload

MEASURE_LONGER = "Measure with longer traffic: another --traffic NAME, or longer phases in workload.toml."


def decide(
    workload: Workload,
    archive_sha256: str,
    measured: Sequence[Measurement],
    provenance: Provenance,
    lengths: PayloadLengths | None = None,
    price_list: PriceList = "sagemaker",
) -> Recommendation:
    """Judges and sizes every measurement; recommends the cheapest that meets the objective. `lengths` are those of the
    payloads that were sent, if they are known.
    """
    profile = workload.traffic.get(provenance.traffic)  # None for a default job, whose traffic the service chooses
    limit, demand = profile.stop.max_invocations_per_minute if profile else None, Demand.of(workload.latency_objective)
    candidates = size_candidates(measured, demand, workload.sizing, limit, provenance.region, price_list=price_list)
    recommended = cheapest(candidates)
    return Recommendation(
        workload=workload.name,
        target=workload.hosting.target,
        archive_sha256=archive_sha256,
        objective=workload.latency_objective,
        recommended=recommended,
        capacity_basis=next((one.capacity_basis for one in (recommended, *candidates) if one), "closed-loop"),
        candidates=candidates,
        provenance=provenance,
        lengths=lengths,
        cold_start=next(
            (one.cold_start for one, tested in zip(measured, candidates, strict=True) if tested is recommended),
            measured[0].cold_start if measured else None,
        ),
    )


def candidate(
    measured: Measurement, demand: Demand, sizing: Sizing, price: Price, job_limit_per_minute: int | None
) -> Candidate:
    """Judges, sizes and prices one tested configuration; `job_limit_per_minute` is as in `judge`."""
    judged = judge(measured, demand, job_limit_per_minute)
    changes: dict[str, Any] = {"cost_reason": price.reason}
    if rate := judged.max_invocations_per_minute:
        sized = fleet(rate, demand, sizing)
        changes |= {"instance_count": sized.instance_count, "instance_count_parts": sized.parts}
        changes["autoscaling"] = sized.autoscaling
        if price.usd_per_hour is not None:
            per_hour = sized.instance_count * price.usd_per_hour
            per_million = cost_per_million_usd(per_hour, demand.peak_invocations_per_minute)
            changes |= {"cost_per_hour_usd": per_hour, "cost_per_million_invocations_usd": per_million}
    return judged.model_copy(update=changes)


def size_candidates(
    measured: Sequence[Measurement],
    demand: Demand,
    sizing: Sizing,
    job_limit_per_minute: int | None,
    job_region: str | None,
    region: str | None = None,
    price_list: PriceList = "sagemaker",
) -> tuple[Candidate, ...]:
    """Judges and sizes every measurement. Prices are those of the job in `job_region`, unless `region` is another."""
    prices = [job_price(one.instance_type, one.price_per_hour_usd, job_region, region, price_list) for one in measured]
    return tuple(
        candidate(one, demand, sizing, price, job_limit_per_minute) for one, price in zip(measured, prices, strict=True)
    )


def cheapest(candidates: Iterable[Candidate]) -> Candidate | None:
    """Returns the best candidate that meets the objective, if any.

    The lowest cost per hour wins, and an unknown cost loses to any known one; then the fewest instances; then the
    highest capacity of an instance.
    """
    return min(
        (candidate for candidate in candidates if candidate.meets_objective),
        key=lambda candidate: (
            math.inf if candidate.cost_per_hour_usd is None else candidate.cost_per_hour_usd,
            candidate.instance_count or 0,
            -(candidate.max_invocations_per_minute or 0),
        ),
        default=None,
    )


def why_refused(measured: Sequence[Measurement]) -> str | None:
    """Returns why the load generator refused a verdict, as a sentence, or None where it did not."""
    for measurement in measured:
        if measurement.refused:
            advice = f" {MEASURE_LONGER}" if measurement.refused == "too few samples" else ""
            return f"{measurement.instance_type}: {measurement.failure_reason}.{advice}"
    return None


def why_inconclusive(measured: Sequence[Measurement], objective: LatencyObjective) -> str | None:
    """Returns why no candidate can be judged, as a sentence: open-loop probes contradict the estimate of each one that
    did not fail. Returns None if one can be judged.
    """
    contradictions = [is_contradicted(one, objective) for one in measured if not one.failure_reason]
    return contradictions[0] if contradictions and all(contradictions) else None


def why_invalid(measured: Sequence[Measurement], objective: LatencyObjective) -> str | None:
    """Returns why nothing may be concluded from a completed job, as a sentence, or None."""
    if not measured:
        return "The job has no results."
    for measurement in measured:
        series = measurement.series
        if not measurement.failure_reason and series and (reason := _why_series_is_invalid(series, objective)):
            return f"{measurement.instance_type}: {reason}"
    return why_refused(measured)


def _why_series_is_invalid(series: Series, objective: LatencyObjective) -> str | None:
    total = sum(count or 0 for count in series.invocations)
    errors = sum(count or 0 for count in series.errors)
    if total and errors > total * MAX_ERROR_SHARE:
        return f"{errors:,.0f} of {total:,.0f} requests failed, more than {MAX_ERROR_SHARE:.0%}."
    needed = samples_needed(objective.percentile_rank)
    if series.seconds and total < needed:
        return f"{total:,.0f} requests are too few: {objective.percentile} needs at least {needed:,}. {MEASURE_LONGER}"
    return None
