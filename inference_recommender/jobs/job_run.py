"""The use case: run the planned jobs, keep all they return, decide, report.

Knows `Service` as its one port. The requests were built before anything is sent; what is needed to go on is on disk
before the first job is created, so that a run may be killed at any moment and resumed.
"""

import time
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aws_api.errors import AwsUnavailable
from inference_recommender.errors import RunExists
from inference_recommender.jobs.collect import collect, resumable
from inference_recommender.jobs.requests import SERVICES_OWN, JobPlan
from inference_recommender.jobs.retrying_service import Patient
from inference_recommender.jobs.service import Service
from inference_recommender.jobs.tested_model import RUN_TAG
from inference_recommender.jobs.wait import Sleep
from inference_recommender.measurement import Measurement
from inference_recommender.payloads import check_payloads, payload_archive
from inference_recommender.progress import Progress
from inference_recommender.report.page import page
from inference_recommender.run_folder import Jobs, RunFolder, Verdict
from inference_recommender.sizing.decision import decide
from workloads import ModelArtifact, Provenance, Recommendation, Workload, WorkloadFolder

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
    traffic_name: str = SERVICES_OWN


def run(
    prepared: Prepared, service: Service, kept: RunFolder, progress: Progress, sleep: Sleep = time.sleep
) -> Recommendation:
    """Measure and decide. What was measured is in `kept` however it ends; a recommendation also goes into the
    workload's folder, for review. Raises `RunExists`, or what `measure` raises.
    """
    if kept.begun:
        raise RunExists(kept.path)
    kept.keep_verdict(Verdict(traffic=prepared.traffic_name, archive_sha256=prepared.artifact.archive_sha256))
    _begin(prepared.plan, prepared.folder, kept)
    return resume(prepared.folder, service, kept, progress, sleep)


def resume(
    folder: WorkloadFolder, service: Service, kept: RunFolder, progress: Progress, sleep: Sleep = time.sleep
) -> Recommendation:
    """Go on with a run that was begun, to the same end. The workload is what it was then.

    Raises `NothingToResume`, or what `measure` raises.
    """
    measured = collect(service, kept, progress, sleep)
    workload, verdict = kept.workload(), kept.verdict()
    with resumable(kept, AwsUnavailable):
        provenance = _provenance(workload, verdict, Patient(service, progress, sleep), kept)
    recommendation = decide(workload, verdict.archive_sha256, measured, provenance)
    kept.keep_recommendation(recommendation)
    kept.keep_report(page(workload, recommendation, measured, kept.request()))
    if recommendation.recommended is not None:
        recommendation.write_json(folder.recommendation_file)
    return recommendation


def measure(
    plan: JobPlan,
    folder: WorkloadFolder,
    service: Service,
    kept: RunFolder,
    progress: Progress,
    sleep: Sleep = time.sleep,
) -> tuple[Measurement, ...]:
    """Run the planned jobs to their end, keep all they return, and give what may be believed. Goes on with those of
    `kept` where they were begun before.

    Raises `PayloadTooLarge`, `JobNameTaken`, `JobFailed`, `InvalidRun`, `Interrupted`, `Suspended` or another
    `AwsUnavailable`.
    """
    if not kept.begun:
        _begin(plan, folder, kept)
    return collect(service, kept, progress, sleep)


def _begin(plan: JobPlan, folder: WorkloadFolder, kept: RunFolder) -> None:
    """Put down all that the run consists of. Nothing is sent."""
    rows = folder.payloads()
    check_payloads(folder.workload.name, rows)
    kept.keep_workload(folder.workload)
    kept.keep_bytes("payloads.tar.gz", payload_archive(rows))
    token = uuid.uuid4().hex
    jobs = Jobs(
        token=token,
        names=tuple(request["JobName"] for request in plan.requests),
        expected_s=plan.expected_s,
        payload_url=plan.payload_url,
        deployed=plan.deployed,
    )
    kept.keep_jobs(jobs, tuple(_marked(request, token) for request in plan.requests))


def _marked(request: dict[str, Any], token: str) -> dict[str, Any]:
    return {**request, "Tags": [*request["Tags"], {"Key": RUN_TAG, "Value": token}]}


def _provenance(workload: Workload, verdict: Verdict, service: Service, kept: RunFolder) -> Provenance:
    described = kept.description()
    machine = service.measured_on(described["JobArn"])
    return Provenance(
        measured_on="local" if machine else "sagemaker",
        machine=machine or ", ".join(workload.instance_types),
        job_name=described["JobName"],
        job_arn=described["JobArn"],
        traffic=verdict.traffic,
        percentile=workload.latency_objective.percentile,
        measured_at=datetime.fromisoformat(described.get("CompletionTime") or described["LastModifiedTime"]).isoformat(
            timespec="seconds"
        ),
        region=service.region,
        run=f"{kept.path.parent.name}/{kept.path.name}",
    )
