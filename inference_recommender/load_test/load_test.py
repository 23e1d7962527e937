"""The use case: drive the load, keep what it measured, decide, report: as after a job.

How the load is made is the caller's: one generator on this machine (`alone`), or a fleet of them.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inference_recommender.jobs.requests import stopping_conditions, traffic_pattern
from inference_recommender.load_generator.plan import LoadPlan
from inference_recommender.load_generator.process import GeneratorProcess, Outcome
from inference_recommender.load_test.errors import GeneratorFailed, TargetFailed
from inference_recommender.load_test.measured import measurement
from inference_recommender.load_test.served import Served
from inference_recommender.measurement import Measurement
from inference_recommender.payloads import payload_archive
from inference_recommender.progress import Progress, ProgressUpdate
from inference_recommender.report.page import page
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.decision import decide, why_invalid
from workloads import (
    Interrupted,
    ModelArtifact,
    PhasedTraffic,
    Provenance,
    Recommendation,
    StairTraffic,
    WorkloadFolder,
)

PAYLOADS, LOAD = "payloads.tar.gz", "load"
TARGET_FAILED, INVALID = 3, 4

OnEvent = Callable[[Mapping[str, Any]], None]


class Stopped(Exception):
    """A person interrupted a `Drive`: what was measured by then."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


Drive = Callable[[LoadPlan, Path, OnEvent], Outcome]
"""Runs a plan into a folder and tells its events. On Ctrl-C it ends in good order and raises `Stopped`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """All that a run needs, before anything is sent."""

    source: WorkloadFolder
    artifact: ModelArtifact
    traffic_name: str
    traffic: PhasedTraffic | StairTraffic
    served: Served
    plan: LoadPlan
    machine: str
    """Where the load comes from."""


def run(prepared: Prepared, drive: Drive, kept: RunFolder, progress: Progress) -> Recommendation:
    """Measure and decide. What was measured is in `kept` however it ends; a recommendation also goes into the
    workload's folder, for review. Raises what `measure` raises.
    """
    measured = (measure(prepared, drive, kept, progress),)
    workload = prepared.source.workload
    recommendation = decide(workload, prepared.artifact.archive_sha256, measured, _provenance(prepared, kept))
    kept.keep_recommendation(recommendation)
    kept.keep_report(page(workload, recommendation, measured, kept.request()))
    if recommendation.recommended is not None:
        recommendation.write_json(prepared.source.recommendation_file)
    return recommendation


def measure(prepared: Prepared, drive: Drive, kept: RunFolder, progress: Progress) -> Measurement:
    """Raises `Interrupted`, `NoVerdict`, `TargetFailed` or `GeneratorFailed`, or what `drive` raises."""
    _keep_request(prepared, kept)
    try:
        outcome = drive(prepared.plan, kept.path / LOAD, _told(prepared, progress))
    except Stopped as stopped:
        _keep(stopped.outcome, prepared, kept)
        raise Interrupted(f"Interrupted: the load was stopped. What was measured is kept in {kept.path}.") from None
    measured = _keep(outcome, prepared, kept)
    _refuse(outcome, measured, prepared, kept)
    return measured


def alone(plan: LoadPlan, folder: Path, on_event: OnEvent) -> Outcome:
    """One generator, a child process of this one."""
    generator = GeneratorProcess.start(plan, folder)
    try:
        with generator:
            for event in generator.events():
                on_event(event)
    except KeyboardInterrupt:
        raise Stopped(generator.outcome()) from None
    return generator.outcome()


def _keep_request(prepared: Prepared, kept: RunFolder) -> None:
    """In the shape of a job's request, of which the report and `compare` read the traffic."""
    workload = prepared.source.workload
    kept.keep_workload(workload)
    kept.keep(
        "request.json",
        {
            "InputConfig": {"TrafficPattern": traffic_pattern(prepared.traffic)},
            "StoppingConditions": stopping_conditions(prepared.traffic, workload.latency_objective),
        },
    )
    kept.keep_bytes(PAYLOADS, payload_archive(prepared.source.payloads()))


def _keep(outcome: Outcome, prepared: Prepared, kept: RunFolder) -> Measurement:
    measured = measurement(outcome, prepared.plan, prepared.served)
    kept.keep_measurements((measured,))
    return measured


def _refuse(outcome: Outcome, measured: Measurement, prepared: Prepared, kept: RunFolder) -> None:
    if outcome.exit_code == TARGET_FAILED:
        raise TargetFailed(prepared.served.name, outcome.reason, kept.path)
    if outcome.exit_code not in (0, INVALID):
        raise GeneratorFailed(outcome.reason, kept.path)
    if reason := why_invalid([measured], prepared.source.workload.latency_objective):
        raise kept.no_verdict(reason)


def _told(prepared: Prepared, progress: Progress) -> OnEvent:
    """Each of the generator's windows as a progress update."""
    began = time.monotonic()

    def tell(event: Mapping[str, Any]) -> None:
        if event["event"] != "window":
            return
        length_s = max(event["end_s"] - event["start_s"], 1e-9)
        progress.update(
            ProgressUpdate(
                job_name=prepared.served.name,
                status="IN_PROGRESS",
                elapsed_s=time.monotonic() - began,
                expected_s=prepared.traffic.duration_s,
                users=event["users"],
                invocations_per_minute=(event["invocations"] - event["errors"]) / length_s * 60,
                p99_ms=event["latency_ms"].get("p99"),
            )
        )

    return tell


def _provenance(prepared: Prepared, kept: RunFolder) -> Provenance:
    served = prepared.served
    what = f"{served.name} on {served.instance_count} × {served.instance_type}, asked from {prepared.machine}"
    return Provenance(
        measured_on=served.measured_on,
        machine=prepared.machine if served.measured_on == "local" else what,
        job_name=kept.path.name,
        job_arn=served.name,
        traffic=prepared.traffic_name,
        percentile=prepared.source.workload.latency_objective.percentile,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        region=served.region or "unknown",
        run=f"{kept.path.parent.name}/{kept.path.name}",
    )
