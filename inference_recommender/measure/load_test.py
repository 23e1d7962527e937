"""Measures by the load generator: a workload's traffic, sent to a system under test in a closed loop.

The load comes from one generator on this machine (`alone`), or from several (`generator_fleet`). The result has the
shape of a job's. Latency is the client's, which includes the network and the service's front end.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from inference_recommender.capacity.server_times import ServerTimes
from inference_recommender.capacity.time_series import Series
from inference_recommender.load_generator.load_plan import LoadPlan, StoppingConditions, TrafficPattern, schedule
from inference_recommender.load_generator.process import GeneratorProcess, OnEvent, Outcome
from inference_recommender.load_generator.records import SentRequests, binned_percentile
from inference_recommender.load_generator.self_watch import stalled_between
from inference_recommender.measure.job_requests import stopping_conditions, traffic_pattern
from inference_recommender.measure.job_service import LATENCIES, QUANTILES
from inference_recommender.measure.probe import endpoint_of
from inference_recommender.measure.system import SystemUnderTest
from inference_recommender.measurement import Measurement
from inference_recommender.payloads import content_type_of
from inference_recommender.progress import Progress
from inference_recommender.run_folder import PAYLOADS, RunFolder
from inference_recommender.sizing.decision import why_invalid
from inference_recommender.triton_statistics import TritonStatistics
from workloads import (
    Interrupted,
    LatencyPercentiles,
    NoVerdict,
    PhasedTraffic,
    Provenance,
    StairTraffic,
    Unavailable,
    Workload,
)

LOAD = "load"
"""The generator's folder below the run's."""
COARSER_S = {1: 900, 5: 5400}
"""Period of the time series in seconds → the longest run in seconds that has it; longer runs have 60."""


class LoadTestFailed(Unavailable):
    """The server or the generator failed; AWS and other load tests are not affected."""


class Stopped(Exception):
    """The user interrupted a `Drive`; `outcome` holds the measurements until then."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


Drive = Callable[[LoadPlan, Path, OnEvent], Outcome]
"""Runs a plan into a folder and reports its events. On Ctrl-C it ends in good order and raises `Stopped`."""


def alone(plan: LoadPlan, folder: Path, on_event: OnEvent) -> Outcome:
    """A `Drive` by one generator, as a child process."""
    generator = GeneratorProcess(plan, folder)
    try:
        return generator.run(on_event)
    except KeyboardInterrupt:
        raise Stopped(generator.outcome()) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadTest:
    """A `Source`: phased traffic against one system."""

    system: SystemUnderTest
    traffic: PhasedTraffic | StairTraffic
    request_timeout_s: float
    drive: Drive = alone
    generators: str | None = None
    """The instances that make the load; None for this machine."""

    def begin(self, run_folder: RunFolder) -> None:
        """Keeps the traffic in the shape of a job's request, which the report and `compare` read."""
        objective = run_folder.workload().latency_objective
        conditions = stopping_conditions(self.traffic, objective, objective.percentile)
        pattern = {"TrafficPattern": traffic_pattern(self.traffic)}
        run_folder.keep("request.json", {"InputConfig": pattern, "StoppingConditions": conditions})

    def plan(self, workload: Workload, payloads: Path) -> LoadPlan:
        """Returns the generator's plan."""
        objective = workload.latency_objective
        conditions = stopping_conditions(self.traffic, objective, objective.percentile)
        return LoadPlan(
            url=self.system.url,
            endpoint=endpoint_of(self.system),
            payloads=payloads.absolute(),
            content_type=content_type_of(workload),
            traffic_pattern=TrafficPattern.model_validate(traffic_pattern(self.traffic), strict=False),
            stopping_conditions=StoppingConditions.model_validate(conditions, strict=False),
            request_timeout_s=self.request_timeout_s,
        )

    def measure(self, run_folder: RunFolder, progress: Progress) -> tuple[Measurement, ...]:
        """Raises `Interrupted`, `NoVerdict` or `LoadTestFailed`, or what the drive raises."""
        plan = self.plan(run_folder.workload(), run_folder.path / PAYLOADS)
        statistics = TritonStatistics(self.system.url)
        before = statistics.read()
        report = progress.timed(self.system.name, self.traffic.duration_s)

        def on_event(event: Mapping[str, Any]) -> None:
            if event["event"] == "window":
                report("IN_PROGRESS")

        try:
            outcome = self.drive(plan, run_folder.path / LOAD, on_event)
        except Stopped as stopped:
            self._keep(stopped.outcome, plan, run_folder, None)
            raise Interrupted(f"Interrupted: the load was stopped. Measurements: {run_folder}.") from None
        requests = outcome.summary["invocations"] - outcome.summary["errors"] if outcome.summary else 0
        measured = self._keep(outcome, plan, run_folder, statistics.since(before, requests))
        self._check_outcome(outcome, measured, run_folder)
        return (measured,)

    def provenance(self, run_folder: RunFolder) -> Provenance:
        machine = f"{self.system.machine}, load from {self.generators}" if self.generators else self.system.machine
        return provenance(self.system, machine, run_folder)

    def _keep(self, outcome: Outcome, plan: LoadPlan, run_folder: RunFolder, server: ServerTimes | None) -> Measurement:
        measured = measurement(outcome, plan, self.system).model_copy(update={"server": server})
        run_folder.keep_measurements((measured,))
        return measured

    def _check_outcome(self, outcome: Outcome, measured: Measurement, run_folder: RunFolder) -> None:
        """Raises an error if nothing can be concluded."""
        if outcome.exit_code == Unavailable.exit_code:
            raise LoadTestFailed(f"{self.system.name}: {outcome.reason}. Measurements: {run_folder}.")
        if outcome.exit_code not in (0, NoVerdict.exit_code):
            raise LoadTestFailed(f"{outcome.reason}\nMeasurements: {run_folder}.")
        if reason := why_invalid([measured], run_folder.workload().latency_objective):
            raise run_folder.no_verdict(reason)


def provenance(system: SystemUnderTest, machine: str, run_folder: RunFolder) -> Provenance:
    """Returns the origin of a system's measurements that end now."""
    return Provenance(
        measured_on=system.measured_on,
        machine=machine,
        job_name=run_folder.path.name,
        job_arn=system.name,
        traffic=run_folder.inputs().traffic,
        percentile=run_folder.workload().latency_objective.percentile,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        region=system.region,
        run=run_folder.relative_name,
    )


def measurement(outcome: Outcome, plan: LoadPlan, system: SystemUnderTest) -> Measurement:
    """Returns a generator's result, or that of several, per instance. Without a summary it has only the reason."""
    summary, count = outcome.summary, system.instances
    if summary is None or not outcome.records.exists():
        return Measurement(instance_type=system.instance_type, endpoint_name=system.name, failure_reason=outcome.reason)
    series = time_series(SentRequests.read(outcome.records), plan, summary)
    quantiles, rate = series.model_latency_quantiles_ms, summary["closed_loop_invocations_per_minute"]
    low, high = summary["closed_loop_invocations_interval"] or (None, None)
    return Measurement(
        instance_type=system.instance_type,
        endpoint_name=system.name,
        closed_loop_invocations_per_minute=None if rate is None else rate / count,
        closed_loop_invocations_interval=None if low is None or high is None else (low / count, high / count),
        model_latency_ms=summary["model_latency_ms"],
        percentile=summary["percentile"],
        percentiles_ms=LatencyPercentiles(**{name: quantiles.get(name) for name in LATENCIES}),
        warm_up_s=summary["warm_up_s"],
        client_latency_ms=_known(summary["client_latency_ms"], LATENCIES),
        client_latency_from_intended_ms=_known(summary["client_latency_from_intended_ms"], LATENCIES),
        failure_reason=outcome.reason if outcome.exit_code else None,
        series=series,
        instance_count=count,
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


def _known(values: Mapping[str, float | None], names: Sequence[str] = QUANTILES) -> dict[str, float]:
    return {name: value for name in names if (value := values.get(name)) is not None}
