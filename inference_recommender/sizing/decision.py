"""From measurements to a recommendation, or to the reason why there can be none. Pure."""

from collections.abc import Sequence

from inference_recommender.capacity.closed_loop import MAX_ERROR_SHARE, samples_needed
from inference_recommender.load_generator.summary import INVALID_REASONS
from inference_recommender.measurement import Measurement, Series
from inference_recommender.sizing.candidates import candidate, cheapest
from inference_recommender.sizing.fleet import Demand
from inference_recommender.sizing.prices import price
from workloads import LatencyObjective, Provenance, Recommendation, Workload


def decide(
    workload: Workload, archive_sha256: str, measured: Sequence[Measurement], provenance: Provenance
) -> Recommendation:
    """Judge and size every measurement; recommend the cheapest that meets the objective."""
    profile = workload.traffic.get(provenance.traffic)  # None: a default job's, which the service chooses
    job_limit = profile.stop.max_invocations_per_minute if profile else None
    candidates = tuple(
        candidate(
            one,
            Demand.of(workload.latency_objective),
            workload.sizing,
            price(one.instance_type, provenance.region, one.price_per_hour_usd),
            job_limit,
        )
        for one in measured
    )
    return Recommendation(
        workload=workload.name,
        target=workload.hosting.target,
        archive_sha256=archive_sha256,
        objective=workload.latency_objective,
        recommended=cheapest(candidates),
        candidates=candidates,
        provenance=provenance,
    )


def why_refused(measured: Sequence[Measurement]) -> str | None:
    """Why the load generator itself refused a verdict: in a sentence, or None where it did not."""
    for one in measured:
        if one.failure_reason and one.failure_reason.startswith(INVALID_REASONS):
            return f"{one.instance_type}: {one.failure_reason}."
    return None


def why_invalid(measured: Sequence[Measurement], objective: LatencyObjective) -> str | None:
    """Why nothing may be concluded from a completed job: in a sentence, or None."""
    if not measured:
        return "The job has no results."
    for one in measured:
        if not one.failure_reason and one.series and (reason := _series_is_invalid(one.series, objective)):
            return f"{one.instance_type}: {reason}"
    return why_refused(measured)


def _series_is_invalid(series: Series, objective: LatencyObjective) -> str | None:
    total = sum(count or 0 for count in series.invocations)
    errors = sum(count or 0 for count in series.errors)
    if total and errors > total * MAX_ERROR_SHARE:
        return f"{errors:,.0f} of {total:,.0f} requests failed, more than {MAX_ERROR_SHARE:.0%}."
    needed = samples_needed(objective.percentile_rank)
    if series.seconds and total < needed:
        return f"{total:,.0f} requests are too few: {objective.percentile} needs at least {needed:,}."
    return None
