"""Judges one measurement: whether an instance keeps the objective, at which rate of open arrivals, and how that is
known. Pure.

Callers do not wait for each other's answers, so the rate that an instance bears is one of open arrivals:

    open-loop     our generator searched it with Poisson arrivals
    estimate      the flow-equivalent server of the closed-loop records has it (`capacity.flow_equivalent`)
    closed-loop   neither was possible: the rate is a job's MaxInvocations, of users who wait, and sizes as arithmetic

A percentile is judged by figures of which it is known to be one: by our own records, or by the endpoint's ModelLatency
in CloudWatch. The ModelLatency of a job's response is no such figure: AWS documents no percentile for it, and the
threshold of an advanced job is a P95 whatever the objective. Where nothing else is there, the verdict is "unverified".
"""

from dataclasses import dataclass, replace

from inference_recommender.capacity.closed_loop import Limit
from inference_recommender.capacity.flow_equivalent import Estimate, Records, model_latencies, records
from inference_recommender.capacity.time_series import highest_within
from inference_recommender.measurement import SERVERLESS, Measurement, OpenLoop, limit_of
from inference_recommender.sizing.fleet import Demand
from workloads import LatencyObjective
from workloads.recommendation import CapacityBasis

SAME_RATE = 0.05
"""A job's own figure is its best minute, CloudWatch's is the mean of several: so much more is the same rate. Where
every load that there was keeps the objective, the job's figure stands whatever it is."""
NO_LOAD_PER_MINUTE = 1e-6
"""An instance that bears no more than this, an invocation in two years, bears no load."""
SHOWN = (0.2, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.84, 0.88, 0.91, 0.94, 0.96, 0.98)
"""Shares of the rate that most users had at which a report shows the latency to be expected."""
OF_USERS = "The rate is of closed-loop users, who wait for their answers; callers who do not may need more instances."


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
        said.append(f"The job stopped at its limit of {job_limit_per_minute:,}: an instance may bear more.")
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
    if found and found.percentile == demand.percentile and found.limit_ms <= limit_ms and found.decides:
        return _by_search(measured, found, asked)
    estimated = _estimate(measured, Limit(percentile=float(demand.percentile[1:]), latency_ms=limit_ms))
    if estimated is not None:
        return _by_estimate(measured, asked, estimated)
    if measured.percentile == demand.percentile and measured.model_latency_ms is not None:
        return _by_our_own_figure(measured, asked, measured.model_latency_ms, limit_ms)
    return _unverified(measured, asked, demand.percentile)


def where_to_look(measured: Measurement, objective: LatencyObjective) -> float | None:
    """Returns the rate of an instance at which a search with open arrivals begins: the estimate, or half of what users
    had where nothing lets more be expected; None where they had none.
    """
    if _why_no_capacity(measured):
        return None
    expected = _estimate(measured, limit_of(objective))
    if expected is not None and expected.invocations_per_minute > 0:
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
        return f"The job reported {rate:g} invocations/min for it: it bore no load."
    return None


def _estimate(measured: Measurement, limit: Limit) -> Estimate | None:
    """Estimates an instance's share of what the whole fleet would bear."""
    settled = _records(measured, limit.percentile)
    if settled is None:
        return None
    whole, instances = settled.estimate(limit), measured.instance_count
    low, high = whole.interval
    return Estimate(
        invocations_per_minute=whole.invocations_per_minute / instances,
        interval=(low / instances, high / instances),
        latency_ms=whole.latency_ms,
    )


def _records(measured: Measurement, percentile: float) -> Records | None:
    """Returns what the test recorded of latencies that are known to be of a percentile; of the whole fleet."""
    series = measured.series
    if series is None:
        return None
    ours = measured.percentile is not None
    return records(series, series.latency_ms if ours else model_latencies(series, f"p{percentile:g}"))


def _by_search(measured: Measurement, found: OpenLoop, asked: str) -> Verdict:
    """Judges by arrivals that were sent: the rate found is the highest within the limit."""
    if not (rate := found.invocations_per_minute):
        return _as_it_is(measured, meets=False, reason=f"Misses {asked} with open-loop arrivals: {found.reason}.")
    nearest = ""
    if found.latency_ms is not None and found.latency_ms > found.limit_ms:
        nearest = f" The probe nearest to that had {found.latency_ms:.4g} ms; those about it decide together."
    return Verdict(
        meets=True,
        reason=f"Keeps {asked} with open-loop arrivals: {_figures(None, rate)}.{nearest}{_beside(measured)}",
        invocations_per_minute=rate,
        basis="open-loop",
        interval=found.interval,
        latency_ms=found.latency_ms,
    )


def _by_estimate(measured: Measurement, asked: str, estimated: Estimate) -> Verdict:
    """Judges by the flow-equivalent server of the closed-loop records."""
    rate = estimated.invocations_per_minute
    unended = f" A search with open-loop arrivals gave none: {measured.open_loop.reason}." if measured.open_loop else ""
    if rate <= NO_LOAD_PER_MINUTE:
        reason = f"Misses {asked}: a request alone takes {estimated.latency_ms:.4g} ms, by the test's records.{unended}"
        return _as_it_is(measured, meets=False, reason=reason, latency_ms=estimated.latency_ms)
    return Verdict(
        meets=True,
        reason=f"Keeps {asked} with open-loop arrivals, as estimated from closed-loop records: {_figures(None, rate)}."
        f"{_beside(measured)}{unended}",
        invocations_per_minute=rate,
        basis="estimate",
        interval=estimated.interval,
        latency_ms=estimated.latency_ms,
    )


def _beside(measured: Measurement) -> str:
    closed = measured.max_invocations_per_minute
    return "" if closed is None else f" The test's users, who wait for their answers, had {closed:,.0f}."


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
    """Takes the rate that there is as it is; one of a job's users is said to be theirs."""
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
