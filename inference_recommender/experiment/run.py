"""The use case: measure every cell that is left, each kept as soon as its job has ended.

Knows `Account` as its one port. Killed at any moment and started again on the same folder, it goes on where it was: a
job that was begun is waited for, a cell that is measured is left alone, a test that failed is made again.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from inference_recommender.errors import Interrupted, InvalidRun, JobFailed
from inference_recommender.experiment.account import Account
from inference_recommender.experiment.cells import Cell
from inference_recommender.experiment.folder import ExperimentFolder, Origin
from inference_recommender.experiment.model import Access, model_request
from inference_recommender.experiment.plan import Batch, Experiment, batches, job_plan
from inference_recommender.measurement import Measurement
from inference_recommender.progress import Progress
from inference_recommender.run import measure
from inference_recommender.run_folder import RunFolder
from inference_recommender.wait import Sleep
from workloads import ModelArtifact, WorkloadFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """All that an experiment needs, before anything is sent."""

    experiment: Experiment
    source: WorkloadFolder
    artifacts: Mapping[str, ModelArtifact]
    """By variant."""
    archives: Mapping[str, Path]
    access: Access


def run(
    prepared: Prepared, account: Account, kept: ExperimentFolder, progress: Progress, sleep: Sleep = time.sleep
) -> tuple[Measurement, ...]:
    """Every cell's measurement, in the experiment's order; a test that failed has a reason instead of figures.

    Raises `Interrupted`, `Suspended` or an `AwsUnavailable` that is about no single job; what is measured by then is
    kept.
    """
    experiment = prepared.experiment
    begun = [batch for batch in kept.batches() if not all(kept.ended(cell) for cell in batch.cells)]
    for batch in begun:
        _run_batch(prepared, batch, account, kept, progress, sleep)
    names = [batch.name for batch in kept.batches()]
    for batch in batches(experiment, kept.left(experiment.cells), names):
        kept.keep_batch(batch)
        _run_batch(prepared, batch, account, kept, progress, sleep)
    return kept.measured(experiment.cells)


def _run_batch(
    prepared: Prepared, batch: Batch, account: Account, kept: ExperimentFolder, progress: Progress, sleep: Sleep
) -> None:
    artifact = prepared.artifacts[batch.variant]
    account.upload_archive(prepared.access.archive_url(artifact), prepared.archives[batch.variant])
    account.make_model(model_request(batch.name, artifact, prepared.access))
    cells = prepared.experiment.cells
    try:
        why = _run_job(prepared, batch, account, kept.job(batch), progress, sleep)
    except Interrupted:
        if (kept.job(batch).path / "measurements.json").exists():
            _keep(batch, account, kept, cells, why=None)
            account.delete_model(batch.name)
        raise
    _keep(batch, account, kept, cells, why or "The job has no result of it.")
    account.delete_model(batch.name)


def _run_job(
    prepared: Prepared, batch: Batch, account: Account, job: RunFolder, progress: Progress, sleep: Sleep
) -> str | None:
    """Why the job came to nothing, or None. What it measured is in `job`."""
    workload = prepared.source.workload
    subject = prepared.access.subject(workload.name, batch.name)
    plan = job_plan(prepared.experiment, batch, workload, subject)
    try:
        measure(plan, prepared.source, account, job, progress, sleep)
    except (JobFailed, InvalidRun) as error:
        return str(error)
    return None


def _keep(batch: Batch, account: Account, kept: ExperimentFolder, cells: Iterable[Cell], why: str | None) -> None:
    """What the job measured, and where: every cell of it, or where it was cut short those whose test had ended."""
    job = kept.job(batch)
    described = job.description()
    machine = account.measured_on(described["JobArn"])
    ended = datetime.fromisoformat(described.get("CompletionTime") or described["LastModifiedTime"])
    kept.keep_origin(
        Origin(
            measured_on="local" if machine else "sagemaker",
            machine=machine or "Amazon SageMaker",
            region=account.region,
            measured_at=ended.isoformat(timespec="seconds"),
        )
    )
    kept.keep_cells(_tests(job, batch, why), cells)


def _tests(job: RunFolder, batch: Batch, why: str | None) -> Iterator[Measurement]:
    """The cells whose test has ended; with a `why`, the others too, failed for that reason."""
    found = {one.instance_type: one for one in job.measurements()}
    cut_short = {
        step["InferenceBenchmark"].get("EndpointConfiguration", {}).get("EndpointName")
        for step in job.steps()
        if "InferenceBenchmark" in step and step["Status"] not in ("COMPLETED", "FAILED")
    }
    for instance_type in batch.instance_types:
        one = found.get(instance_type)
        if one is not None and one.endpoint_name not in cut_short:
            yield one.model_copy(update={"variant": batch.variant})
        elif why is not None:
            yield _failed(batch, instance_type, why)


def _failed(batch: Batch, instance_type: str, why: str) -> Measurement:
    return Measurement(
        instance_type=instance_type,
        variant=batch.variant,
        endpoint_name=batch.name,
        max_invocations_per_minute=None,
        model_latency_ms=None,
        failure_reason=why,
    )
