"""Measures by the load generator: a workload's traffic, sent to a system under test in a closed loop.

The load comes from one generator on this machine (`alone`), or from several (`generator_fleet`).
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inference_recommender.capacity.server_times import ServerTimes
from inference_recommender.load_generator.plan import LoadPlan, StoppingConditions, TrafficPattern
from inference_recommender.load_generator.process import GeneratorProcess, Outcome
from inference_recommender.measure.job_requests import JSON, stopping_conditions, traffic_pattern
from inference_recommender.measure.load_test_result import measurement
from inference_recommender.measure.probe import endpoint_of
from inference_recommender.measure.system import SystemUnderTest
from inference_recommender.measurement import Measurement
from inference_recommender.progress import Progress, ProgressUpdate
from inference_recommender.run_folder import PAYLOADS, RunFolder
from inference_recommender.sizing.decision import why_invalid
from inference_recommender.triton_statistics import TritonStatistics
from workloads import Interrupted, LatencyObjective, PhasedTraffic, Provenance, StairTraffic, Unavailable

LOAD = "load"
"""The generator's folder below the run's."""
TARGET_FAILED, INVALID = 3, 4
"""Exit codes of the generator."""

OnEvent = Callable[[Mapping[str, Any]], None]


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
    generator = GeneratorProcess.start(plan, folder)
    try:
        with generator:
            for event in generator.events():
                on_event(event)
    except KeyboardInterrupt:
        raise Stopped(generator.outcome()) from None
    return generator.outcome()


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

    def plan(self, objective: LatencyObjective, payloads: Path) -> LoadPlan:
        """Returns the generator's plan."""
        conditions = stopping_conditions(self.traffic, objective, objective.percentile)
        return LoadPlan(
            url=self.system.url,
            endpoint=endpoint_of(self.system),
            payloads=payloads.absolute(),
            content_type=JSON,
            traffic_pattern=TrafficPattern.model_validate(traffic_pattern(self.traffic), strict=False),
            stopping_conditions=StoppingConditions.model_validate(conditions, strict=False),
            request_timeout_s=self.request_timeout_s,
        )

    def measure(self, run_folder: RunFolder, progress: Progress) -> tuple[Measurement, ...]:
        """Raises `Interrupted`, `NoVerdict` or `LoadTestFailed`, or what the drive raises."""
        objective = run_folder.workload().latency_objective
        plan, statistics = self.plan(objective, run_folder.path / PAYLOADS), TritonStatistics(self.system.url)
        before = statistics.read()
        updates = _progress_updates(self.system.name, self.traffic.duration_s, objective, progress)
        try:
            outcome = self.drive(plan, run_folder.path / LOAD, updates)
        except Stopped as stopped:
            self._keep(stopped.outcome, plan, run_folder, None)
            raise Interrupted(f"Interrupted: the load was stopped. Measurements: {run_folder}.") from None
        requests = outcome.summary["invocations"] - outcome.summary["errors"] if outcome.summary else 0
        measured = self._keep(outcome, plan, run_folder, statistics.since(before, requests))
        self._check(outcome, measured, run_folder)
        return (measured,)

    def provenance(self, run_folder: RunFolder) -> Provenance:
        machine = f"{self.system.machine}, load from {self.generators}" if self.generators else self.system.machine
        return provenance(self.system, machine, run_folder)

    def _keep(self, outcome: Outcome, plan: LoadPlan, run_folder: RunFolder, server: ServerTimes | None) -> Measurement:
        measured = measurement(outcome, plan, self.system).model_copy(update={"server": server})
        run_folder.keep_measurements((measured,))
        return measured

    def _check(self, outcome: Outcome, measured: Measurement, run_folder: RunFolder) -> None:
        """Raises an error if nothing can be concluded."""
        if outcome.exit_code == TARGET_FAILED:
            raise LoadTestFailed(f"{self.system.name}: {outcome.reason}. Measurements: {run_folder}.")
        if outcome.exit_code not in (0, INVALID):
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


def _progress_updates(name: str, expected_s: float, objective: LatencyObjective, progress: Progress) -> OnEvent:
    """Returns a handler that turns each of the generator's windows into a progress update."""
    began, percentile = time.monotonic(), f"p{objective.percentile_rank:g}"

    def on_event(event: Mapping[str, Any]) -> None:
        if event["event"] != "window":
            return
        shown = percentile if percentile in event["latency_ms"] else "p99"
        length_s = max(event["end_s"] - event["start_s"], 1e-9)
        progress.update(
            ProgressUpdate(
                job_name=name,
                status="IN_PROGRESS",
                elapsed_s=time.monotonic() - began,
                expected_s=expected_s,
                users=event["users"],
                invocations_per_minute=(event["invocations"] - event["errors"]) / length_s * 60,
                latency_ms=event["latency_ms"].get(shown),
                percentile=shown,
            )
        )

    return on_event
