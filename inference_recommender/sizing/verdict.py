"""Judges one measurement: whether an instance meets the objective, at which rate, and by which method. Pure.

Callers do not wait for each other's answers, so open arrivals size a fleet:

    open-loop     an open-loop search measured it, or a lower bound of it
    estimate      from the closed-loop records (`capacity.flow_equivalent`)
    closed-loop   neither was possible: the rate is a job's MaxInvocations, of users who wait for their answers

Probes that contradict the estimate leave no verdict: the run is inconclusive.

A percentile is judged by the load generator's records or by the endpoint's ModelLatency in CloudWatch. AWS documents no
percentile for the ModelLatency in a job's response. If only that is known, the verdict is "unverified".
"""

from dataclasses import dataclass, replace

from inference_recommender.capacity.flow_equivalent import Records, model_latencies, records
from inference_recommender.capacity.limit import Limit
from inference_recommender.capacity.probe import Probe
from inference_recommender.capacity.rate import Capacity
from inference_recommender.capacity.time_series import highest_within
from inference_recommender.measurement import SERVERLESS, Measurement, limit_of
from inference_recommender.sizing.fleet import Demand
from workloads import LatencyObjective
from workloads.recommendation import CapacityBasis

SAME_RATE = 0.05
"""Rates within this share are equal: a job reports its best minute, and CloudWatch's figure is a mean of several."""
NO_LOAD_PER_MINUTE = 1e-6
"""Rates below this count as zero."""
SHOWN = (0.2, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.84, 0.88, 0.91, 0.94, 0.96, 0.98)
"""Shares of the highest closed-loop rate at which a report shows the expected latency."""
OF_USERS = "The rate is of closed-loop users, who wait for their answers; callers who do not may need more instances."
FAR_BELOW = 0.4
"""An estimate below this share of the closed-loop rate is checked with an open-loop search before it sizes a fleet."""
BELOW_ESTIMATE = 0.8
"""A probe over the limit at a rate below this share of the estimate contradicts it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    meets: bool
    reason: str
    invocations_per_minute: float | None = None
    """The rate of an instance to size by, whether it meets the objective or not; None where there is none."""
    basis: CapacityBasis = "closed-loop"
    interval: tuple[float, float] | None = None
    """95 % confidence interval of that rate."""
    latency_ms: float | None = None
    """At the objective's percentile and that rate; None where it is not known."""
    verified: bool = True
    """Whether anything shows if the objective is kept."""


def judge(measured: Measurement, demand: Demand, job_limit_per_minute: int | None = None) -> Verdict:
    """`job_limit_per_minute` is the MaxInvocations at which the job would stop, if any: a rate found there is a lower
    bound.
    """
    verdict = _judge(measured, demand)
    reached = job_limit_per_minute and (measured.max_invocations_per_minute or 0) >= job_limit_per_minute
    said = [verdict.reason]
    if verdict.meets and reached and verdict.basis != "open-loop":
        said.append(f"The job stopped at its limit of {job_limit_per_minute:,}: an instance may sustain more.")
    if measured.model_latency_unit == "µs":
        said.append("The job gave its latency in µs.")
    return replace(verdict, reason=" ".join(said))


def _judge(measured: Measurement, demand: Demand) -> Verdict:
    limit_ms = demand.model_latency_ms
    if refused := _why_no_capacity(measured):
        return Verdict(meets=False, reason=refused)
    if limit_ms is None:
        figures = _figures(measured.model_latency_ms, measured.max_invocations_per_minute)
        reason = f"Latency is not judged, for no objective was given: {figures}."
        return _as_it_is(measured, meets=True, reason=reason)
    if demand.percentile is None:
        return _by_the_jobs_figure(measured, limit_ms)
    asked = f"{demand.percentile} model latency ≤ {limit_ms:g} ms"
    found = measured.open_loop
    if found and (found.percentile != demand.percentile or found.limit_ms > limit_ms):
        found = None
    if found and found.decides:
        return _by_search(measured, found, asked)
    estimated = _estimate(measured, Limit(percentile=float(demand.percentile[1:]), latency_ms=limit_ms))
    if estimated is not None:
        if found and (contradiction := _contradiction(found, estimated)):
            return replace(_as_it_is(measured, meets=False, reason=contradiction), verified=False)
        if found and found.at_least and found.at_least > (estimated.invocations_per_minute or 0.0):
            return _by_lower_bound(measured, found, asked, found.at_least)
        return _by_estimate(measured, asked, estimated)
    if found and found.at_least:
        return _by_lower_bound(measured, found, asked, found.at_least)
    if measured.percentile == demand.percentile and measured.model_latency_ms is not None:
        return _by_our_own_figure(measured, asked, measured.model_latency_ms, limit_ms)
    return _unverified(measured, asked, demand.percentile)


def is_contradicted(measured: Measurement, objective: LatencyObjective) -> str | None:
    """Returns why open-loop probes contradict the estimate, as a sentence; None where they do not."""
    found, estimated = measured.open_loop, _estimate(measured, limit_of(objective))
    if found is None or found.decides or estimated is None or _why_no_capacity(measured):
        return None
    return _contradiction(found, estimated)


def is_far_below_closed_loop(measured: Measurement, objective: LatencyObjective) -> bool:
    """Returns whether the estimate is so far below the closed-loop rate that it needs a check."""
    users = measured.max_invocations_per_minute
    estimated = None if _why_no_capacity(measured) else _estimate(measured, limit_of(objective))
    rate = estimated and estimated.invocations_per_minute
    return bool(users and rate and rate < FAR_BELOW * users)


def initial_rate(measured: Measurement, objective: LatencyObjective) -> float | None:
    """Returns the rate per instance at which an open-loop search begins: the estimate, or half of the closed-loop rate
    without one. Returns None if the closed-loop test had no rate.
    """
    if _why_no_capacity(measured):
        return None
    expected = _estimate(measured, limit_of(objective))
    if expected is not None and expected.invocations_per_minute:
        return expected.invocations_per_minute
    users = measured.max_invocations_per_minute
    return None if users is None else users / 2


def expected_latencies(measured: Measurement, objective: LatencyObjective) -> tuple[tuple[float, float], ...]:
    """Returns points of the curve that the estimate is on: rates of open arrivals per instance, and the milliseconds of
    the objective's percentile there; none without records of it.
    """
    settled = _records(measured, objective.percentile_rank)
    if settled is None:
        return ()
    server = settled.server()
    rates = [share * server.most for share in SHOWN]
    return tuple((rate / measured.instance_count, server.latency_ms(rate, objective.percentile_rank)) for rate in rates)


def sustained_rate(measured: Measurement, objective: LatencyObjective) -> float | None:
    """Returns the rate of closed-loop users, per minute and instance: the job's own, or a lower one at which
    CloudWatch's ModelLatency keeps the objective.
    """
    rate, limit = measured.max_invocations_per_minute, limit_of(objective)
    if measured.failure_reason or rate is None or measured.percentile is not None or measured.series is None:
        return rate
    level = highest_within(measured.series, limit)
    if level is None or not level.within_limit or level.is_highest:
        return rate
    kept = level.invocations_per_minute / measured.instance_count
    return rate if rate <= kept * (1 + SAME_RATE) else kept


def _why_no_capacity(measured: Measurement) -> str | None:
    rate = measured.max_invocations_per_minute
    if measured.failure_reason:
        return measured.failure_reason
    if measured.instance_type == SERVERLESS:
        return "Serverless: there are no instances to count."
    if measured.open_loop is not None and measured.open_loop.decides:
        return None
    if rate is None:
        return "The job reported no capacity for it."
    if rate <= NO_LOAD_PER_MINUTE:
        return f"The job reported {rate:g} invocations/min for it, which is no load."
    return None


def _estimate(measured: Measurement, limit: Limit) -> Capacity | None:
    """Estimates the capacity of an instance."""
    settled = _records(measured, limit.percentile)
    return None if settled is None else settled.estimate(limit).per_instance(measured.instance_count)


def _records(measured: Measurement, percentile: float) -> Records | None:
    """Returns what the test recorded of latencies that are known to be of a percentile; of the whole fleet."""
    series = measured.series
    if series is None:
        return None
    ours = measured.percentile is not None
    return records(series, series.latency_ms if ours else model_latencies(series, f"p{percentile:g}"))


def _by_search(measured: Measurement, found: Capacity, asked: str) -> Verdict:
    """Judges by the highest rate within the limit that an open-loop search found."""
    if not (rate := found.invocations_per_minute):
        return _as_it_is(measured, meets=False, reason=f"Misses {asked} with open-loop arrivals: {found.reason}.")
    nearest = ""
    if found.latency_ms is not None and found.latency_ms > found.limit_ms:
        nearest = (
            f" The probe nearest to that rate had {found.latency_ms:.4g} ms; the probes around it decide together."
        )
    return Verdict(
        meets=True,
        reason=f"Meets {asked} at {rate:,.0f} invocations/min, by an open-loop search.{nearest}"
        f"{_closed_loop(measured)}",
        invocations_per_minute=rate,
        basis="open-loop",
        interval=found.interval,
        latency_ms=found.latency_ms,
    )


def _by_lower_bound(measured: Measurement, found: Capacity, asked: str, rate: float) -> Verdict:
    """Judges by the lower bound of a search that did not finish."""
    return Verdict(
        meets=True,
        reason=f"Meets {asked} at {rate:,.0f} invocations/min or more. This is a lower bound, because the open-loop "
        f"search ended early: {found.reason}.{_closed_loop(measured)}",
        invocations_per_minute=rate,
        basis="open-loop",
        interval=found.interval,
    )


def _by_estimate(measured: Measurement, asked: str, estimated: Capacity) -> Verdict:
    """Judges by the flow-equivalent server of the closed-loop records."""
    rate, users = estimated.invocations_per_minute or 0.0, measured.max_invocations_per_minute
    search = f" The open-loop search gave no capacity: {measured.open_loop.reason}." if measured.open_loop else ""
    if rate <= NO_LOAD_PER_MINUTE:
        reason = (
            f"Misses {asked}: one request alone takes {estimated.latency_ms:.4g} ms, by the test's records.{search}"
        )
        return _as_it_is(measured, meets=False, reason=reason, latency_ms=estimated.latency_ms)
    far = f" The estimate is only {rate / users:.0%} of that rate." if users and rate < FAR_BELOW * users else ""
    step = " Run again with --search to measure it."
    return Verdict(
        meets=True,
        reason=f"Estimate: meets {asked} up to {rate:,.0f} invocations/min with open-loop arrivals."
        f"{_closed_loop(measured)}{far}{search}{step}",
        invocations_per_minute=rate,
        basis="estimate",
        interval=estimated.interval,
    )


def _contradiction(found: Capacity, estimated: Capacity) -> str | None:
    """Returns why a search without a capacity contradicts the estimate, as a sentence with both figures."""
    rate = estimated.invocations_per_minute or 0.0
    if rate <= NO_LOAD_PER_MINUTE:
        return None
    words = f"Inconclusive: the estimate is {rate:,.0f} invocations/min, but"
    if found.interval and estimated.interval and found.interval[1] < estimated.interval[0]:
        low, high = found.interval
        return f"{words} the open-loop search found {low:,.0f} to {high:,.0f} (95 % interval)."
    within = max((one.invocations_per_minute for one in found.probes if _within(one, found.limit_ms)), default=0.0)
    over = [one for one in found.probes if within < one.invocations_per_minute < BELOW_ESTIMATE * rate]
    if not over:
        return None
    lowest = min(over, key=lambda one: one.invocations_per_minute)
    seen = "too many requests had no answer"
    if lowest.latency_ms is not None:
        seen = f"{found.percentile} was {lowest.latency_ms:.4g} ms (limit {found.limit_ms:g} ms)"
    return (
        f"{words} {seen} in an open-loop probe at {lowest.invocations_per_minute:,.0f}. Measure again with less other "
        "work on the machine."
    )


def _within(probe: Probe, limit_ms: float) -> bool:
    return probe.latency_ms is not None and probe.latency_ms <= limit_ms


def _closed_loop(measured: Measurement) -> str:
    users = measured.max_invocations_per_minute
    return "" if users is None else f" The closed-loop test reached {users:,.0f}."


def _by_our_own_figure(measured: Measurement, asked: str, latency_ms: float, limit_ms: float) -> Verdict:
    """Judges by the percentile that closed-loop users saw, where their records are not there to estimate more from."""
    keeps = latency_ms <= limit_ms
    figures = _figures(latency_ms, measured.max_invocations_per_minute)
    reason = f"{'Keeps' if keeps else 'Misses'} {asked}: {figures}."
    return _as_it_is(measured, meets=keeps, reason=reason, latency_ms=latency_ms)


def _unverified(measured: Measurement, asked: str, percentile: str) -> Verdict:
    found = measured.open_loop
    if found is not None and found.decides:
        reason = (
            f"Unverified: nothing shows whether it keeps {asked}. Its capacity, "
            f"{_figures(None, found.invocations_per_minute)}, was searched for within {found.percentile} ≤ "
            f"{found.limit_ms:g} ms."
        )
        return replace(_as_it_is(measured, meets=False, reason=reason), verified=False)
    figures = _figures(measured.model_latency_ms, measured.max_invocations_per_minute)
    reason = (
        f"Unverified: nothing shows whether it keeps {asked}. There is no {percentile} of ModelLatency from "
        f"CloudWatch, and no percentile is documented for the job's own figures, {figures}."
    )
    return replace(_as_it_is(measured, meets=False, reason=reason), verified=False)


def _by_the_jobs_figure(measured: Measurement, limit_ms: float) -> Verdict:
    """Judges a limit that names no percentile by the one figure that the job gives."""
    latency = measured.model_latency_ms
    if latency is None:
        reason = f"The job reported no model latency for it, so nothing shows that it keeps {limit_ms:g} ms."
        return _as_it_is(measured, meets=False, reason=reason)
    keeps = latency <= limit_ms
    reason = (
        f"{'Keeps' if keeps else 'Misses'} model latency ≤ {limit_ms:g} ms: "
        f"{_figures(latency, measured.max_invocations_per_minute)}, by a figure of undocumented percentile."
    )
    return _as_it_is(measured, meets=keeps, reason=reason)


def _as_it_is(measured: Measurement, *, meets: bool, reason: str, latency_ms: float | None = None) -> Verdict:
    """Sizes by the search's rate, else by the closed-loop rate, with a caution."""
    found = measured.open_loop
    if found is not None and found.invocations_per_minute:
        rate, interval = found.invocations_per_minute, found.interval
        return Verdict(meets=meets, reason=reason, invocations_per_minute=rate, basis="open-loop", interval=interval)
    return Verdict(
        meets=meets,
        reason=f"{reason} {OF_USERS}" if measured.max_invocations_per_minute is not None else reason,
        invocations_per_minute=measured.max_invocations_per_minute,
        interval=measured.max_invocations_interval,
        latency_ms=latency_ms,
    )


def _figures(latency_ms: float | None, rate: float | None) -> str:
    at = f"{rate or 0:,.0f} invocations/min"
    return at if latency_ms is None else f"{latency_ms:.4g} ms at {at}"
