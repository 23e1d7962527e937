"""The result of a generator, or of several merged, as a Measurement with its time series, in the shape of a job's.

Latency is the client's, which includes what the network and the service's front end add. Rates are per instance.
"""

import math
from collections.abc import Mapping

import numpy as np

from inference_recommender.capacity.time_series import Series
from inference_recommender.load_generator.plan import LoadPlan, schedule
from inference_recommender.load_generator.process import Outcome
from inference_recommender.load_generator.records import SentRequests, binned_percentile
from inference_recommender.load_generator.self_watch import stalled_between
from inference_recommender.measure.system import SystemUnderTest
from inference_recommender.measurement import Measurement
from workloads import LatencyPercentiles

LATENCIES = ("p50", "p90", "p95", "p99")
QUANTILES = ("p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p99.9")
COARSER_S = {1: 900, 5: 5400}
"""Period of the time series in seconds → the longest run in seconds that has it; longer runs have 60."""


def measurement(outcome: Outcome, plan: LoadPlan, system: SystemUnderTest) -> Measurement:
    """Without a summary, the measurement carries only the failure reason."""
    summary = outcome.summary
    if summary is None or not outcome.records.exists():
        return _nothing(system, outcome.reason)
    series = time_series(SentRequests.read(outcome.records), plan, summary)
    quantiles = series.model_latency_quantiles_ms
    return Measurement(
        instance_type=system.instance_type,
        endpoint_name=system.name,
        max_invocations_per_minute=_per_instance(summary["max_invocations_per_minute"], system),
        max_invocations_interval=_interval(summary, system),
        model_latency_ms=summary["model_latency_ms"],
        percentile=summary["percentile"],
        percentiles_ms=LatencyPercentiles(**{name: quantiles.get(name) for name in LATENCIES}),
        warm_up_s=summary["warm_up_s"],
        client_latency_ms=_percentiles(summary["client_latency_ms"]),
        client_latency_from_intended_ms=_percentiles(summary["client_latency_from_intended_ms"]),
        failure_reason=outcome.reason if outcome.exit_code else None,
        series=series,
        instance_count=system.instances,
    )


def time_series(requests: SentRequests, plan: LoadPlan, summary: Mapping[str, float]) -> Series:
    """Returns a point for every period from the second of the run's start to that of its end, with the plan's users.

    A request without an answer is an error of the point in which it was due.
    """
    began, ended = summary["started_at"], summary["started_at"] + summary["duration_s"]
    start, end = math.floor(began), math.ceil(ended)
    rows = requests.shifted(began - start).between(0.0, float(end - start))
    step = next((step for step, longest in COARSER_S.items() if end - start <= longest), 60)
    points = np.arange(0, end - start, step)
    of_point = np.searchsorted(points, rows.finished_s, side="right") - 1
    due_s = rows.unfinished_intended_s
    unfinished = np.searchsorted(points, due_s[due_s >= 0], side="right") - 1
    invocations = np.bincount(np.concatenate([of_point, unfinished]), minlength=len(points))
    errors = np.bincount(np.concatenate([of_point[~rows.succeeded], unfinished]), minlength=len(points))
    by_point = [rows.latencies_ms[(of_point == n) & rows.succeeded] for n in range(len(points))]
    return Series(
        period_s=step,
        seconds=tuple(float(point) for point in points),
        users=tuple(_users(plan, max(float(point) - (began - start), 0.0)) for point in points),
        invocations=tuple(float(count) for count in invocations),
        errors=tuple(float(count) for count in errors),
        stalled_s=tuple(stalled_between(rows.stalls_s, float(at), float(at + step)) for at in points),
        latency_ms={
            name: tuple(binned_percentile(latencies_ms, float(name[1:])) for latencies_ms in by_point)
            for name in LATENCIES
        },
        model_latency_quantiles_ms=_known(
            {name: binned_percentile(rows.successful_ms, float(name[1:])) for name in QUANTILES}
        ),
    )


def _users(plan: LoadPlan, second: float) -> float | None:
    if plan.traffic_pattern is None:
        return None
    return float(schedule(plan.traffic_pattern, plan.job_duration_s).users_at(second))


def _interval(summary: Mapping[str, object], system: SystemUnderTest) -> tuple[float, float] | None:
    match summary["max_invocations_interval"]:
        case [float() | int() as low, float() | int() as high]:
            return low / system.instances, high / system.instances
        case _:
            return None


def _per_instance(rate: float | None, system: SystemUnderTest) -> float | None:
    return None if rate is None else rate / system.instances


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def _percentiles(values: Mapping[str, float | None]) -> dict[str, float]:
    """Leaves out the maximum, which is no percentile."""
    return _known({name: values.get(name) for name in LATENCIES})


def _nothing(system: SystemUnderTest, why: str) -> Measurement:
    return Measurement(
        instance_type=system.instance_type,
        endpoint_name=system.name,
        max_invocations_per_minute=None,
        model_latency_ms=None,
        failure_reason=why,
    )
