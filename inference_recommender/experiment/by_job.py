"""A batch of cells measured by one Inference Recommender job."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from inference_recommender.experiment.account import Account
from inference_recommender.experiment.cells import Cell
from inference_recommender.experiment.folder import ExperimentFolder, Origin
from inference_recommender.experiment.plan import Batch, failed, job_plan
from inference_recommender.experiment.prepared import Prepared
from inference_recommender.jobs.job_run import JobFailed, measure
from inference_recommender.jobs.service import Sleep
from inference_recommender.measurement import Measurement
from inference_recommender.progress import Progress
from inference_recommender.run_folder import RunFolder
from workloads import Interrupted, NoVerdict


def measure_by_job(
    prepared: Prepared, batch: Batch, account: Account, kept: ExperimentFolder, progress: Progress, sleep: Sleep
) -> None:
    """Create the job, or go on with it, and keep every cell; interrupted, those whose test had ended.

    Raises `Interrupted` or an `AwsUnavailable` that is not about this job.
    """
    cells = prepared.experiment.cells
    try:
        why = _run_job(prepared, batch, account, kept.job(batch), progress, sleep)
    except Interrupted:
        if (kept.job(batch).path / "measurements.json").exists():
            _keep(batch, account, kept, cells, why=None)
        raise
    _keep(batch, account, kept, cells, why or "The job has no result of it.")


def _run_job(
    prepared: Prepared, batch: Batch, account: Account, job: RunFolder, progress: Progress, sleep: Sleep
) -> str | None:
    """Why the job came to nothing, or None. What it measured is in `job`."""
    workload = prepared.source.workload
    subject = prepared.access.subject(workload.name, batch.name)
    plan = job_plan(prepared.experiment, batch, workload, subject)
    try:
        measure(plan, prepared.source, account, job, progress, sleep)
    except (JobFailed, NoVerdict) as error:
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
            yield failed(batch, instance_type, why)
