"""The use case of a load test: drive the load, keep what it measured, decide and report, as a job's run does.

The caller chooses who makes the load: one generator on this machine (`alone`), or a fleet of them.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inference_recommender.capacity.search import SendProbe
from inference_recommender.capacity.server_times import ServerTimes
from inference_recommender.load_generator.plan import LoadPlan
from inference_recommender.load_generator.process import GeneratorProcess, Outcome
from inference_recommender.measure.job_requests import stopping_conditions, traffic_pattern
from inference_recommender.measure.load_test_result import measurement
from inference_recommender.measure.search import search_s, searched
from inference_recommender.measure.served import Served
from inference_recommender.measurement import Measurement
from inference_recommender.payloads import payload_archive
from inference_recommender.progress import Progress, ProgressUpdate
from inference_recommender.report.run_report import draw
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.decision import decide, why_inconclusive, why_invalid
from inference_recommender.sizing.verdict import is_far_below_closed_loop
from inference_recommender.triton_statistics import UNREACHABLE, TritonStatistics
from workloads import (
    Interrupted,
    ModelArtifact,
    PayloadLengths,
    PhasedTraffic,
    Provenance,
    Recommendation,
    StairTraffic,
    Unavailable,
    WorkloadFolder,
)

PAYLOADS, LOAD = "payloads.tar.gz", "load"
TARGET_FAILED, INVALID = 3, 4
"""Exit codes of the generator."""

OnEvent = Callable[[Mapping[str, Any]], None]


class LoadTestFailed(Unavailable):
    """The server or the generator failed; nothing is wrong with AWS or with other load tests."""


class Stopped(Exception):
    """The user interrupted a `Drive`; `outcome` holds what was measured by then."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


Drive = Callable[[LoadPlan, Path, OnEvent], Outcome]
"""Runs a plan into a folder and reports its events. On Ctrl-C it ends in good order and raises `Stopped`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A load test before anything is sent."""

    source: WorkloadFolder
    artifact: ModelArtifact
    traffic_name: str
    traffic: PhasedTraffic | StairTraffic
    served: Served
    plan: LoadPlan
    machine: str
    """The machine or the instances that make the load."""
    lengths: PayloadLengths | None = None
    """The payloads' lengths; None where nothing counted them."""


def run(
    prepared: Prepared,
    drive: Drive,
    run_folder: RunFolder,
    progress: Progress,
    probe: SendProbe | None = None,
    statistics: TritonStatistics = UNREACHABLE,
    *,
    search: bool = False,
) -> Recommendation:
    """Measures and decides. `run_folder` keeps what was measured however the run ends; a recommendation is also written
    to the workload's folder, for review. Raises what `measure` raises.

    `probe` sends open-loop arrivals to the same server, if `search` is set or the estimate needs a check. `statistics`
    are the server's own.
    """
    measured = measure(prepared, drive, run_folder, progress, statistics)
    workload = prepared.source.workload
    if probe and (search or is_far_below_closed_loop(measured, workload.latency_objective)):
        measured = _with_open_arrivals(measured, prepared, probe, run_folder, progress)
    if reason := why_inconclusive([measured], workload.latency_objective):
        raise run_folder.no_verdict(reason)
    provenance = _provenance(prepared, run_folder)
    recommendation = decide(workload, prepared.artifact.archive_sha256, [measured], provenance, prepared.lengths)
    run_folder.keep_recommendation(recommendation)
    draw(run_folder)
    if recommendation.recommended is not None:
        recommendation.write_json(prepared.source.recommendation_file)
    return recommendation


def _with_open_arrivals(
    measured: Measurement, prepared: Prepared, probe: SendProbe, run_folder: RunFolder, progress: Progress
) -> Measurement:
    longest_s, objective = search_s(prepared.traffic.duration_s), prepared.source.workload.latency_objective
    try:
        found = searched(measured, probe, objective, longest_s, progress)
    except KeyboardInterrupt:
        raise Interrupted(
            f"Interrupted: the search with open-loop arrivals was stopped. {_kept_in(run_folder)}"
        ) from None
    run_folder.keep_measurements((found,))
    return found


def measure(
    prepared: Prepared,
    drive: Drive,
    run_folder: RunFolder,
    progress: Progress,
    statistics: TritonStatistics = UNREACHABLE,
) -> Measurement:
    """Raises `Interrupted`, `NoVerdict` or `LoadTestFailed`, or what `drive` raises."""
    _keep_request(prepared, run_folder)
    before = statistics.read()
    try:
        outcome = drive(prepared.plan, run_folder.path / LOAD, _progress_updates(prepared, progress))
    except Stopped as stopped:
        _keep(stopped.outcome, prepared, run_folder, None)
        raise Interrupted(f"Interrupted: the load was stopped. {_kept_in(run_folder)}") from None
    requests = outcome.summary["invocations"] - outcome.summary["errors"] if outcome.summary else 0
    measured = _keep(outcome, prepared, run_folder, statistics.since(before, requests))
    _refuse(outcome, measured, prepared, run_folder)
    return measured


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


def machine_description(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Returns this machine's CPU model and cores, such as "AMD EPYC with 2 cores"."""
    count = cores()
    return f"{_cpu_model(cpuinfo)} with {count} core{'s' if count != 1 else ''}"


def cores() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def _cpu_model(cpuinfo: Path) -> str:
    if cpuinfo.exists():
        for line in cpuinfo.read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "unknown CPU"


def _keep_request(prepared: Prepared, run_folder: RunFolder) -> None:
    """Keeps the traffic in the shape of a job's request, where the report and `compare` read it."""
    workload = prepared.source.workload
    objective = workload.latency_objective
    run_folder.keep_workload(workload)
    run_folder.keep(
        "request.json",
        {
            "InputConfig": {"TrafficPattern": traffic_pattern(prepared.traffic)},
            "StoppingConditions": stopping_conditions(prepared.traffic, objective, objective.percentile),
        },
    )
    run_folder.keep_bytes(PAYLOADS, payload_archive(prepared.source.payloads(), objective.rows_per_invocation))


def _keep(outcome: Outcome, prepared: Prepared, run_folder: RunFolder, server: ServerTimes | None) -> Measurement:
    measured = measurement(outcome, prepared.plan, prepared.served).model_copy(update={"server": server})
    run_folder.keep_measurements((measured,))
    return measured


def _refuse(outcome: Outcome, measured: Measurement, prepared: Prepared, run_folder: RunFolder) -> None:
    if outcome.exit_code == TARGET_FAILED:
        raise LoadTestFailed(f"{prepared.served.name}: {outcome.reason}. {_kept_in(run_folder)}")
    if outcome.exit_code not in (0, INVALID):
        raise LoadTestFailed(f"{outcome.reason}\n{_kept_in(run_folder)}")
    if reason := why_invalid([measured], prepared.source.workload.latency_objective):
        raise run_folder.no_verdict(reason)


def _kept_in(run_folder: RunFolder) -> str:
    return f"What was measured is kept in {run_folder}."


def _progress_updates(prepared: Prepared, progress: Progress) -> OnEvent:
    """Returns a handler that turns each of the generator's windows into a progress update."""
    began, asked = time.monotonic(), f"p{prepared.source.workload.latency_objective.percentile_rank:g}"

    def tell(event: Mapping[str, Any]) -> None:
        if event["event"] != "window":
            return
        shown = asked if asked in event["latency_ms"] else "p99"
        length_s = max(event["end_s"] - event["start_s"], 1e-9)
        progress.update(
            ProgressUpdate(
                job_name=prepared.served.name,
                status="IN_PROGRESS",
                elapsed_s=time.monotonic() - began,
                expected_s=prepared.traffic.duration_s,
                users=event["users"],
                invocations_per_minute=(event["invocations"] - event["errors"]) / length_s * 60,
                latency_ms=event["latency_ms"].get(shown),
                percentile=shown,
            )
        )

    return tell


def _provenance(prepared: Prepared, run_folder: RunFolder) -> Provenance:
    served, path = prepared.served, run_folder.path
    what = f"{served.name} on {served.instance_count} × {served.instance_type}, asked from {prepared.machine}"
    return Provenance(
        measured_on=served.measured_on,
        machine=prepared.machine if served.measured_on == "local" else what,
        job_name=path.name,
        job_arn=served.name,
        traffic=prepared.traffic_name,
        percentile=prepared.source.workload.latency_objective.percentile,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        region=served.region or "unknown",
        run=f"{path.parent.name}/{path.name}",
    )
