"""The use case: run a planned job, keep all it returns, decide, report.

Knows `Service` as its one port. The request was built before anything is sent.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from inference_recommender.decision import decide, why_invalid, why_refused
from inference_recommender.errors import Interrupted, InvalidRun, JobFailed
from inference_recommender.job import JobPlan
from inference_recommender.measurement import Measurement, measurements
from inference_recommender.payloads import payload_archive
from inference_recommender.progress import Progress
from inference_recommender.report import page
from inference_recommender.run_folder import RunFolder
from inference_recommender.service import Service
from inference_recommender.wait import Sleep, stop_and_wait, wait_for_job
from workloads import ModelArtifact, ProjectError, Provenance, Recommendation, Workload, WorkloadFolder

PAYLOAD_PREFIX = "inference-recommender"
"""The stack's recommender role may read below it."""


def payload_key(workload: str) -> str:
    """Where a workload's payload archive lies in the payload bucket."""
    return f"{PAYLOAD_PREFIX}/{workload}/payloads.tar.gz"


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """All that a run needs, before anything is sent."""

    folder: WorkloadFolder
    artifact: ModelArtifact
    plan: JobPlan
    traffic_name: str


def run(
    prepared: Prepared, service: Service, kept: RunFolder, progress: Progress, sleep: Sleep = time.sleep
) -> Recommendation:
    """Measure and decide. What was measured is in `kept` however it ends; a recommendation also goes into the
    workload's folder, for review. Raises what `measure` raises.
    """
    measured = measure(prepared.plan, prepared.folder, service, kept, progress, sleep)
    provenance = _provenance(prepared, service, kept)
    recommendation = decide(prepared.folder.workload, prepared.artifact.archive_sha256, measured, provenance)
    kept.keep_recommendation(recommendation)
    kept.keep_report(page(prepared.folder.workload, recommendation, measured, kept.request()))
    if recommendation.recommended is not None:
        recommendation.write_json(prepared.folder.recommendation_file)
    return recommendation


def measure(
    plan: JobPlan,
    folder: WorkloadFolder,
    service: Service,
    kept: RunFolder,
    progress: Progress,
    sleep: Sleep = time.sleep,
) -> tuple[Measurement, ...]:
    """Run the planned job to its end, keep all it returns, and give what may be believed.

    Raises `JobNameTaken`, `JobFailed`, `InvalidRun`, `Interrupted` or another `AwsUnavailable`.
    """
    _offer_payloads(plan, folder, service, kept)
    try:
        service.create_job(plan.request)
        described = wait_for_job(service, plan.job_name, plan.traffic.duration_s, progress, sleep)
    except KeyboardInterrupt:
        raise Interrupted(_stop_and_keep(service, plan.job_name, kept)) from None
    measured = _keep(service, described, kept)
    _refuse_invalid(described, measured, folder.workload, kept)
    return measured


def _offer_payloads(plan: JobPlan, folder: WorkloadFolder, service: Service, kept: RunFolder) -> None:
    archive = payload_archive(folder.payloads())
    kept.keep_workload(folder.workload)
    kept.keep("request.json", plan.request)
    kept.keep_bytes("payloads.tar.gz", archive)
    service.upload(plan.payload_url, archive)


def _keep(service: Service, described: Mapping[str, Any], kept: RunFolder) -> tuple[Measurement, ...]:
    steps = service.job_steps(described["JobName"])
    kept.keep("describe.json", described)
    kept.keep("steps.json", steps)
    measured = measurements(described, steps, service.series(described, steps))
    kept.keep_measurements(measured)
    return measured


def _stop_and_keep(service: Service, name: str, kept: RunFolder) -> str:
    """Stop the job that a person interrupted; what became of it."""
    try:
        _keep(service, stop_and_wait(service, name), kept)
    except ProjectError as error:
        return f"job {name} could not be stopped and may still run. {error}"
    return f"job {name} was stopped. What was measured is kept in {kept.path}."


def _refuse_invalid(
    described: Mapping[str, Any], measured: tuple[Measurement, ...], workload: Workload, kept: RunFolder
) -> None:
    name, status = described["JobName"], described["Status"]
    if status == "STOPPED":
        raise InvalidRun(f"Job {name} was stopped before its traffic ended.", kept.path)
    completed = status == "COMPLETED"
    reason = why_invalid(measured, workload.latency_objective) if completed else why_refused(measured)
    if reason:
        raise InvalidRun(reason, kept.path)
    if not completed:
        raise JobFailed(name, described.get("FailureReason", "The service gave no reason."), kept.path)


def _provenance(prepared: Prepared, service: Service, kept: RunFolder) -> Provenance:
    described = kept.description()
    machine = service.measured_on(described["JobArn"])
    workload = prepared.folder.workload
    return Provenance(
        measured_on="local" if machine else "sagemaker",
        machine=machine or ", ".join(workload.instance_types),
        job_name=described["JobName"],
        job_arn=described["JobArn"],
        traffic=prepared.traffic_name,
        percentile=workload.latency_objective.percentile,
        measured_at=datetime.fromisoformat(described["CompletionTime"]).isoformat(timespec="seconds"),
        region=service.region,
        run=f"{kept.path.parent.name}/{kept.path.name}",
    )
