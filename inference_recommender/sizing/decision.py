"""From measurements to a recommendation: each candidate is judged by the demand, sized as a fleet and priced. Pure.

    cost per hour        = instance count · price of an instance
    cost per million     = cost per hour / (peak · 60) · 10⁶

`fleet` computes the instance count, `prices` knows what an instance costs.

A percentile is judged by figures of which it is known to be one: by our own records, or by the endpoint's ModelLatency
in CloudWatch at the load where the capacity is. The ModelLatency of a job's response is no such figure: AWS documents
no percentile for it, and the threshold of an advanced job is a P95 whatever the objective. Where nothing else is there,
the verdict is "unverified", and the fleet is sized all the same.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inference_recommender.capacity.closed_loop import MAX_ERROR_SHARE, Limit
from inference_recommender.capacity.statistics import samples_needed
from inference_recommender.capacity.time_series import Series, highest_within
from inference_recommender.measurement import Measurement
from inference_recommender.sizing.fleet import Demand, fleet
from inference_recommender.sizing.prices import Price, price
from workloads import Candidate, LatencyObjective, Provenance, Recommendation, Sizing, Workload

MEASURE_LONGER = "Measure with longer traffic: another --traffic NAME, or longer phases in workload.toml."
SERVERLESS = "serverless"
"""Stands for the instance type of a measurement whose endpoint was serverless."""
SAME_RATE = 0.05
"""A job's own figure is its best minute, CloudWatch's is the mean of several: so much more is the same rate. Where
every load that there was keeps the objective, the job's figure stands whatever it is."""
NO_LOAD_PER_MINUTE = 1e-6
"""An instance that bears no more than this, an invocation in two years, bears no load."""


def decide(
    workload: Workload, archive_sha256: str, measured: Sequence[Measurement], provenance: Provenance
) -> Recommendation:
    """Judges and sizes every measurement; recommends the cheapest that meets the objective."""
    profile = workload.traffic.get(provenance.traffic)  # None for a default job, whose traffic the service chooses
    job_limit = profile.stop.max_invocations_per_minute if profile else None
    candidates = tuple(
        candidate(
            measurement,
            Demand.of(workload.latency_objective),
            workload.sizing,
            price(measurement.instance_type, provenance.region, measurement.price_per_hour_usd),
            job_limit,
        )
        for measurement in measured
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


def candidate(
    measured: Measurement, demand: Demand, sizing: Sizing, price: Price, job_limit_per_minute: int | None
) -> Candidate:
    """Judges, sizes and prices one tested configuration. One that misses the objective is not sized.

    `job_limit_per_minute` is the MaxInvocations at which the job would stop, if any: a capacity found there is a
    lower bound.
    """
    verdict = _verdict(measured, demand)
    meets, rate, reason = verdict.meets, verdict.invocations_per_minute, verdict.reason
    if meets and job_limit_per_minute and (rate or 0) >= job_limit_per_minute:
        reason += f" The job stopped at its limit of {job_limit_per_minute:,}: an instance may bear more."
    if measured.model_latency_unit == "µs":
        reason += " The job gave it in µs."
    sized = fleet(rate or 0, demand, sizing) if meets or verdict.unverified else None
    per_hour = sized.instance_count * price.usd_per_hour if sized and price.usd_per_hour is not None else None
    return Candidate(
        instance_type=measured.instance_type,
        variant=measured.variant,
        environment=measured.environment,
        max_invocations_per_minute=rate,
        max_invocations_interval=measured.max_invocations_interval,
        model_latency_ms=measured.model_latency_ms,
        objective_latency_ms=verdict.latency_ms,
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


def cost_per_million_usd(cost_per_hour_usd: float, invocations_per_minute: float) -> float:
    return cost_per_hour_usd / (invocations_per_minute * 60) * 1e6


def sustained_rate(measured: Measurement, objective: LatencyObjective) -> float | None:
    """Returns the rate per minute and instance that a fleet would be sized by: the job's own, or a lower one at which
    the objective's percentile is kept.
    """
    return _verdict(measured, Demand.of(objective)).invocations_per_minute


def why_refused(measured: Sequence[Measurement]) -> str | None:
    """Returns why the load generator refused a verdict, as a sentence, or None where it did not."""
    for measurement in measured:
        if measurement.failure_code:
            advice = f" {MEASURE_LONGER}" if measurement.failure_code == "too-few-samples" else ""
            return f"{measurement.instance_type}: {measurement.failure_reason}.{advice}"
    return None


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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Verdict:
    meets: bool
    reason: str
    invocations_per_minute: float | None
    """The rate to size by: the job's, or a lower one at which the objective's percentile is kept."""
    latency_ms: float | None = None
    """At the objective's percentile and that rate; None where it is not known."""
    unverified: bool = False
    """Nothing shows whether the objective is kept at that rate."""


def _verdict(measured: Measurement, demand: Demand) -> _Verdict:
    rate, latency, limit_ms = measured.max_invocations_per_minute, measured.model_latency_ms, demand.model_latency_ms
    if refused := _why_no_capacity(measured):
        return _Verdict(meets=False, reason=refused, invocations_per_minute=rate)
    if limit_ms is None:
        reason = f"Latency is not judged, for no objective was given: {_figures(latency, rate)}."
        return _Verdict(meets=True, reason=reason, invocations_per_minute=rate)
    if demand.percentile is None:
        return _by_the_jobs_figure(measured, limit_ms)
    asked = f"{demand.percentile} model latency ≤ {limit_ms:g} ms"
    if measured.searched_within_ms is not None:
        return _by_search(measured, asked, demand.percentile, limit_ms)
    if measured.percentile == demand.percentile and latency is not None:
        keeps = latency <= limit_ms
        reason = f"{'Keeps' if keeps else 'Misses'} {asked}: {_figures(latency, rate)}."
        return _Verdict(meets=keeps, reason=reason, invocations_per_minute=rate, latency_ms=latency)
    return _by_cloudwatch(measured, asked, Limit(percentile=float(demand.percentile[1:]), latency_ms=limit_ms))


def _why_no_capacity(measured: Measurement) -> str | None:
    rate = measured.max_invocations_per_minute
    if measured.failure_reason:
        return measured.failure_reason
    if measured.instance_type == SERVERLESS:
        return "Serverless: there are no instances to count."
    if rate is None:
        return "The job reported no capacity for it."
    if rate <= NO_LOAD_PER_MINUTE:
        return f"The job reported {rate:g} invocations/min for it: it bore no load."
    return None


def _by_the_jobs_figure(measured: Measurement, limit_ms: float) -> _Verdict:
    """Judges a limit that names no percentile by the one figure that the job gives."""
    rate, latency = measured.max_invocations_per_minute, measured.model_latency_ms
    if latency is None:
        reason = f"The job reported no model latency for it, so nothing shows that it keeps {limit_ms:g} ms."
        return _Verdict(meets=False, reason=reason, invocations_per_minute=rate)
    keeps = latency <= limit_ms
    reason = (
        f"{'Keeps' if keeps else 'Misses'} model latency ≤ {limit_ms:g} ms: {_figures(latency, rate)}, by a figure of "
        "undocumented percentile."
    )
    return _Verdict(meets=keeps, reason=reason, invocations_per_minute=rate)


def _by_search(measured: Measurement, asked: str, percentile: str, limit_ms: float) -> _Verdict:
    """Judges a capacity that was searched for: its rate is the highest within the limit of the search."""
    rate, within_ms = measured.max_invocations_per_minute, measured.searched_within_ms or 0
    if measured.percentile == percentile and within_ms <= limit_ms:
        reason = f"Keeps {asked} with open-loop arrivals: {_figures(None, rate)}."
        return _Verdict(meets=True, reason=reason, invocations_per_minute=rate, latency_ms=measured.model_latency_ms)
    reason = (
        f"Unverified: nothing shows whether it keeps {asked}. Its capacity, {_figures(None, rate)}, was searched for "
        f"within {measured.percentile} ≤ {within_ms:g} ms."
    )
    return _Verdict(meets=False, reason=reason, invocations_per_minute=rate, unverified=True)


def _by_cloudwatch(measured: Measurement, asked: str, limit: Limit) -> _Verdict:
    rate = measured.max_invocations_per_minute or 0
    level = highest_within(measured.series, limit) if measured.series else None
    if level is None:
        reason = (
            f"Unverified: nothing shows whether it keeps {asked}. There is no P{limit.percentile:g} of ModelLatency "
            "from CloudWatch, and no percentile is documented for the job's own figures, "
            f"{_figures(measured.model_latency_ms, rate)}."
        )
        return _Verdict(meets=False, reason=reason, invocations_per_minute=rate, unverified=True)
    kept = level.invocations_per_minute / measured.instance_count
    if not level.within_limit:
        reason = f"Misses {asked} by CloudWatch: {_figures(level.latency_ms, kept)}, the lowest load that there was."
        return _Verdict(meets=False, reason=reason, invocations_per_minute=rate, latency_ms=level.latency_ms)
    sustained = rate if level.is_highest or rate <= kept * (1 + SAME_RATE) else kept
    lower = "" if sustained == rate else f" The job's own {rate:,.0f} was not within it."
    return _Verdict(
        meets=True,
        reason=f"Keeps {asked} by CloudWatch: {_figures(level.latency_ms, sustained)}.{lower}",
        invocations_per_minute=sustained,
        latency_ms=level.latency_ms,
    )


def _figures(latency_ms: float | None, rate: float | None) -> str:
    at = f"{rate or 0:,.0f} invocations/min"
    return at if latency_ms is None else f"{latency_ms:.4g} ms at {at}"
