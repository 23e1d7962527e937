"""Judges one measurement: whether an instance meets the objective, at which rate, and by which method. Pure.

Callers do not wait for each other's answers, so open arrivals size a fleet: an open-loop search or its lower bound, or
an estimate from the periods of a closed-loop test, less its error if arrivals are bursty. Without both the rate is a
job's MaxInvocations, of users who wait. Probes that contradict the estimate leave no verdict: the run is inconclusive.

A percentile is judged by the load generator's records or by the endpoint's ModelLatency in CloudWatch. AWS documents no
percentile for the ModelLatency in a job's response. If only that is known, the verdict is "unverified".
"""

from dataclasses import replace
from typing import Any

from inference_recommender.capacity.flow_equivalent import (
    SettledPeriods,
    less_burst_error,
    model_latencies,
    settled_periods,
)
from inference_recommender.capacity.probe import Capacity
from inference_recommender.capacity.statistics import Limit
from inference_recommender.capacity.time_series import rate_within
from inference_recommender.measurement import SERVERLESS, Measurement, limit_of
from inference_recommender.sizing.fleet import Demand
from workloads import POISSON, ArrivalProcess, Candidate, LatencyObjective
from workloads.recommendation import MeasuredConfiguration

SAME_RATE = 0.05
"""Rates within this share are equal: a job reports its best minute, and CloudWatch a mean of several."""
NO_LOAD_PER_MINUTE = 1e-6
"""Rates below this count as zero."""
SHOWN = (0.2, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.84, 0.88, 0.91, 0.94, 0.96, 0.98)
"""Shares of the highest closed-loop rate at which a report shows the expected latency."""
CVS = (0.5, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0, 3.5, 4.0)
"""Coefficients of variation at which a report shows the capacity."""
OF_USERS = "This is the rate of closed-loop users, who wait for their answers. Other callers may need more instances."
FAR_BELOW = 0.4
"""An estimate below this share of the closed-loop rate is checked with an open-loop search before it sizes a fleet."""
BELOW_ESTIMATE = 0.8
"""A probe over the limit at a rate below this share of the estimate contradicts it."""


def judge(measured: Measurement, demand: Demand, job_limit_per_minute: int | None = None) -> Candidate:
    """Judges one measurement, without a fleet and its price. The capacity is known also where it misses the objective.

    A rate at the job's MaxInvocations, `job_limit_per_minute`, is a lower bound.
    """
    judged, poisson = _judge(measured, demand), None
    basis, percentile = judged.capacity_basis, demand.percentile
    if demand.arrivals != POISSON and percentile and demand.model_latency_ms and basis != "closed-loop":
        limit = Limit(percentile=float(percentile[1:]), latency_ms=demand.model_latency_ms)
        poisson = _estimate(measured, limit, POISSON)
    sentences = [judged.reason]
    reached = job_limit_per_minute and (measured.closed_loop_invocations_per_minute or 0) >= job_limit_per_minute
    if judged.meets_objective and reached and basis != "open-loop":
        sentences.append(f"The job stopped at its limit of {job_limit_per_minute:,}: an instance may sustain more.")
    if measured.model_latency_unit == "µs":
        sentences.append("The job gave its latency in µs.")
    rate = poisson.invocations_per_minute if poisson else None
    return judged.model_copy(update={"reason": " ".join(sentences), "poisson_invocations_per_minute": rate})


def _judged(measured: Measurement, *, meets: bool, reason: str, **figures: Any) -> Candidate:
    copied = {name: getattr(measured, name) for name in MeasuredConfiguration.model_fields}
    copied["model_latency_percentiles_ms"] = measured.percentiles_ms
    return Candidate(**copied, meets_objective=meets, reason=reason, **figures)


def _judge(measured: Measurement, demand: Demand) -> Candidate:
    limit_ms, percentile, latency_ms = demand.model_latency_ms, demand.percentile, measured.model_latency_ms
    figures = f"{measured.closed_loop_invocations_per_minute or 0:,.0f} invocations/min"
    if latency_ms is not None:
        figures = f"{latency_ms:.4g} ms at {figures}"
    if reason := _why_no_capacity(measured):
        return _judged(measured, meets=False, reason=reason)
    if limit_ms is None:
        reason = f"Latency is not judged, because there is no objective: {figures}."
        return _by_known_rate(measured, meets=True, reason=reason)
    meets = latency_ms is not None and latency_ms <= limit_ms
    verb = "Meets" if meets else "Misses"
    if percentile is None:
        reason = f"{verb} model latency ≤ {limit_ms:g} ms: {figures}, of undocumented percentile."
        if latency_ms is None:
            reason = f"The job reported no model latency, so there is no evidence that it meets {limit_ms:g} ms."
        return _by_known_rate(measured, meets=meets, reason=reason)
    objective = f"{percentile} model latency ≤ {limit_ms:g} ms"
    search = measured.open_loop
    if search and (search.percentile != percentile or search.limit_ms > limit_ms):
        search = None
    if search and search.decides:
        return _by_search(measured, search, objective)
    estimate = _estimate(measured, Limit(percentile=float(percentile[1:]), latency_ms=limit_ms), demand.arrivals)
    if search and estimate and (contradiction := _contradiction(search, estimate)):
        return _by_known_rate(measured, meets=False, reason=contradiction, verified=False)
    if search and search.at_least and search.at_least > ((estimate and estimate.sizing_rate) or 0.0):
        return _judged(
            measured,
            meets=True,
            reason=f"Meets {objective} at {search.at_least:,.0f} invocations/min or more. This is a lower bound, "
            f"because the open-loop search ended early: {search.reason}.{_closed_loop(measured)}",
            max_invocations_per_minute=search.at_least,
            max_invocations_interval=search.interval,
            capacity_basis=search.basis,
        )
    if estimate:
        return _by_estimate(measured, objective, estimate)
    if measured.percentile == percentile and latency_ms is not None:
        return _by_known_rate(measured, meets=meets, reason=f"{verb} {objective}: {figures}.", latency_ms=latency_ms)
    why = (
        f"CloudWatch has no {percentile} of ModelLatency, and AWS documents no percentile for the job's own figures, "
        f"{figures}."
    )
    if (other := measured.open_loop) is not None and other.decides:
        why = (
            f"The search for its capacity of {other.invocations_per_minute or 0:,.0f} invocations/min had the limit "
            f"{other.percentile} ≤ {other.limit_ms:g} ms."
        )
    reason = f"Unverified: no evidence that it meets {objective}. {why}"
    return _by_known_rate(measured, meets=False, reason=reason, verified=False)


def is_contradicted(measured: Measurement, objective: LatencyObjective) -> str | None:
    """Returns the contradiction between open-loop probes and the estimate, as a sentence, or None."""
    search, estimate = measured.open_loop, _estimate(measured, limit_of(objective), objective.arrivals)
    if search is None or search.decides or estimate is None or _why_no_capacity(measured):
        return None
    return _contradiction(search, estimate)


def needs_search(measured: Measurement, objective: LatencyObjective) -> str | None:
    """Returns why the capacity has to be searched with open-loop arrivals, or None: the estimate is far below the
    closed-loop rate, or recorded arrivals have no estimate.
    """
    if objective.arrivals.process == "replay":
        return "recorded arrivals have no estimate"
    users, rate = measured.closed_loop_invocations_per_minute, _estimated_rate(measured, objective)
    return "the estimate is far below the closed-loop rate" if users and rate and rate < FAR_BELOW * users else None


def initial_rate(measured: Measurement, objective: LatencyObjective) -> float | None:
    """Returns the rate per instance at which an open-loop search begins: the estimate, or half of the closed-loop rate
    without one. Returns None if the closed-loop test had no rate.
    """
    users = None if _why_no_capacity(measured) else measured.closed_loop_invocations_per_minute
    return _estimated_rate(measured, objective) or (None if users is None else users / 2)


def _estimated_rate(measured: Measurement, objective: LatencyObjective) -> float | None:
    estimate = None if _why_no_capacity(measured) else _estimate(measured, limit_of(objective), objective.arrivals)
    return estimate.invocations_per_minute if estimate else None


def expected_latencies(measured: Measurement, objective: LatencyObjective) -> tuple[tuple[float, float], ...]:
    """Returns points of the estimate's curve: rates of open arrivals per instance, and the percentile in ms.

    Returns none without periods that have the percentile.
    """
    settled = _settled(measured, objective.percentile_rank)
    if settled is None or objective.arrivals.process == "replay":
        return ()
    server = replace(settled.server(), arrivals=objective.arrivals)
    rates = [share * server.most for share in SHOWN]
    return tuple((rate / measured.instance_count, server.latency_ms(rate, objective.percentile_rank)) for rate in rates)


def capacity_by_cv(measured: Measurement, objective: LatencyObjective) -> tuple[tuple[float, float], ...]:
    """Returns the rate that sizes a fleet for gamma arrivals of each CV in `CVS`, estimated; none without periods."""
    settled = _settled(measured, objective.percentile_rank)
    if settled is None:
        return ()
    server, limit = settled.server(), limit_of(objective)
    poisson = max(server.highest_rate(limit), NO_LOAD_PER_MINUTE)
    processes = [ArrivalProcess(process="gamma", cv=cv) for cv in CVS]
    rates = [replace(server, arrivals=each).highest_rate(limit) for each in processes]
    sized = [less_burst_error(rate, rate / poisson) / measured.instance_count for rate in rates]
    return tuple(zip(CVS, sized, strict=True))


def sustained_rate(measured: Measurement, objective: LatencyObjective) -> float | None:
    """Returns the closed-loop rate per instance: the job's, or a lower one within the objective by CloudWatch."""
    rate, limit = measured.closed_loop_invocations_per_minute, limit_of(objective)
    if measured.failure_reason or rate is None or measured.percentile is not None or measured.series is None:
        return rate
    if (of_all := rate_within(measured.series, limit)) is None:
        return rate
    within = of_all / measured.instance_count
    return rate if rate <= within * (1 + SAME_RATE) else within


def _why_no_capacity(measured: Measurement) -> str | None:
    rate = measured.closed_loop_invocations_per_minute
    if measured.failure_reason:
        return measured.failure_reason
    if measured.instance_type == SERVERLESS:
        return "Serverless: there are no instances to count."
    if measured.open_loop is not None and measured.open_loop.decides:
        return None
    if rate is None:
        return "The job reported no capacity."
    if rate <= NO_LOAD_PER_MINUTE:
        return f"The job reported {rate:g} invocations/min, which is no load."
    return None


def _estimate(measured: Measurement, limit: Limit, arrivals: ArrivalProcess) -> Capacity | None:
    """Estimates the capacity of an instance. Recorded arrivals have no estimate."""
    settled = _settled(measured, limit.percentile)
    if settled is None or arrivals.process == "replay":
        return None
    return settled.estimate(limit, arrivals).per_instance(measured.instance_count)


def _settled(measured: Measurement, percentile: float) -> SettledPeriods | None:
    """Returns the settled periods that have the percentile, of the whole fleet."""
    if (series := measured.series) is None:
        return None
    ours = measured.percentile is not None
    return settled_periods(series, series.latency_ms if ours else model_latencies(series, f"p{percentile:g}"))


def _by_search(measured: Measurement, search: Capacity, objective: str) -> Candidate:
    if not (rate := search.invocations_per_minute):
        reason = f"Misses {objective} with open-loop arrivals: {search.reason}."
        return _by_known_rate(measured, meets=False, reason=reason)
    nearest = ""
    if search.latency_ms is not None and search.latency_ms > search.limit_ms:
        nearest = f" The nearest probe had {search.latency_ms:.4g} ms; the probes around it decide together."
    reason = f"Meets {objective} at {rate:,.0f} invocations/min, by an open-loop search.{nearest}"
    return _by_capacity(measured, search, f"{reason}{_closed_loop(measured)}", objective_latency_ms=search.latency_ms)


def _by_estimate(measured: Measurement, objective: str, estimate: Capacity) -> Candidate:
    """Judges by the flow-equivalent server of the closed-loop test."""
    rate, users = estimate.invocations_per_minute or 0.0, measured.closed_loop_invocations_per_minute
    search = f" The open-loop search gave no capacity: {measured.open_loop.reason}." if measured.open_loop else ""
    if rate <= NO_LOAD_PER_MINUTE:
        reason = (
            f"Misses {objective}: a single request takes {estimate.latency_ms:.4g} ms in the closed-loop test.{search}"
        )
        return _by_known_rate(measured, meets=False, reason=reason, latency_ms=estimate.latency_ms)
    sized_for, bursts = estimate, ""
    if (sized := estimate.sizing_rate or rate) < rate:
        interval = tuple(end * sized / rate for end in estimate.interval or (rate, rate))
        sized_for = estimate.model_copy(update={"invocations_per_minute": sized, "interval": interval})
        bursts = f" The test had no bursts, so the fleet is sized for {sized:,.0f}, the estimate less its error."
    far = f" The estimate is only {rate / users:.0%} of that rate." if users and rate < FAR_BELOW * users else ""
    reason = (
        f"Estimate: meets {objective} up to {rate:,.0f} invocations/min with open-loop arrivals.{bursts}"
        f"{_closed_loop(measured)}{far}{search} Run again with --search to measure it."
    )
    return _by_capacity(measured, sized_for, reason)


def _by_capacity(
    measured: Measurement, found: Capacity, reason: str, *, meets: bool = True, **figures: Any
) -> Candidate:
    figures |= {"max_invocations_per_minute": found.invocations_per_minute, "max_invocations_interval": found.interval}
    return _judged(measured, meets=meets, reason=reason, capacity_basis=found.basis, **figures)


def _contradiction(search: Capacity, estimate: Capacity) -> str | None:
    """Returns the contradiction between a search without a capacity and the estimate, as a sentence, or None."""
    rate = estimate.invocations_per_minute or 0.0
    if rate <= NO_LOAD_PER_MINUTE:
        return None
    words = f"Inconclusive: the estimate is {rate:,.0f} invocations/min, but"
    if search.interval and estimate.interval and search.interval[1] < estimate.interval[0]:
        low, high = search.interval
        return f"{words} the open-loop search found {low:,.0f} to {high:,.0f} (95 % interval)."
    within = [each for each in search.probes if each.latency_ms is not None and each.latency_ms <= search.limit_ms]
    highest = max((each.invocations_per_minute for each in within), default=0.0)
    over = [each for each in search.probes if highest < each.invocations_per_minute < BELOW_ESTIMATE * rate]
    if not over:
        return None
    lowest = min(over, key=lambda each: each.invocations_per_minute)
    figure = "too many requests had no answer"
    if lowest.latency_ms is not None:
        figure = f"{search.percentile} was {lowest.latency_ms:.4g} ms (limit {search.limit_ms:g} ms)"
    return (
        f"{words} {figure} in an open-loop probe at {lowest.invocations_per_minute:,.0f}. Measure again with less "
        "other work on the machine."
    )


def _closed_loop(measured: Measurement) -> str:
    users = measured.closed_loop_invocations_per_minute
    return "" if users is None else f" The closed-loop test reached {users:,.0f}."


def _by_known_rate(
    measured: Measurement, *, meets: bool, reason: str, verified: bool = True, latency_ms: float | None = None
) -> Candidate:
    """Sizes by the search's rate, else by the closed-loop rate, with a caution."""
    search, rate = measured.open_loop, measured.closed_loop_invocations_per_minute
    if search is not None and search.invocations_per_minute:
        return _by_capacity(measured, search, reason, meets=meets, verified=verified)
    return _judged(
        measured,
        meets=meets,
        reason=reason if rate is None else f"{reason} {OF_USERS}",
        max_invocations_per_minute=rate,
        max_invocations_interval=measured.closed_loop_invocations_interval,
        objective_latency_ms=latency_ms,
        verified=verified,
    )
