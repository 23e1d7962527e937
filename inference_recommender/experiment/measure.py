"""The use case of an experiment: measure every cell that is left, and keep each as soon as its test has ended.

`Account` is the port to AWS. An experiment that was killed and is started again on the same folder goes on where it
was: it waits for a job that had begun, leaves a measured cell alone, and repeats a test that failed. A batch is
measured by one job of Inference Recommender, here, or by our own generator (`by_load_test`); its model lives as long as
the batch.
"""

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from aws_api.sagemaker import MEASURED_ON_TAG
from inference_recommender.experiment.account import Account, Prepared, with_gpus
from inference_recommender.experiment.by_load_test import measure_by_load_test, run_subject
from inference_recommender.experiment.cells import Cell
from inference_recommender.experiment.folder import ExperimentFolder, Origin
from inference_recommender.experiment.plan import Batch, batches, failed, job_plan, lifetime
from inference_recommender.experiment.resources import model_request
from inference_recommender.measure.job import JobFailed, JobSource
from inference_recommender.measure.job_service import Sleep
from inference_recommender.measure.run import measure as measure_by
from inference_recommender.measurement import Measurement, results
from inference_recommender.progress import Progress
from inference_recommender.run_folder import RunFolder
from workloads import Interrupted, NoVerdict


def run(
    prepared: Prepared, account: Account, folder: ExperimentFolder, progress: Progress, sleep: Sleep = time.sleep
) -> tuple[Measurement, ...]:
    """Returns every cell's measurement in the experiment's order; a failed test has a reason instead of figures.

    Raises `Interrupted`, or an `AwsUnavailable` that concerns more than one job; `folder` keeps what is measured.
    """
    experiment = prepared.experiment
    begun = [batch for batch in folder.batches() if not all(folder.ended(cell) for cell in batch.cells)]
    for batch in begun:
        _run_batch(prepared, batch, account, folder, progress, sleep)
    names = [batch.name for batch in folder.batches()]
    for batch in batches(experiment, folder.left(experiment.cells), names):
        folder.keep_batch(batch)
        _run_batch(prepared, batch, account, folder, progress, sleep)
    return folder.measured(experiment.cells)


def _run_batch(
    prepared: Prepared, batch: Batch, account: Account, folder: ExperimentFolder, progress: Progress, sleep: Sleep
) -> None:
    artifact = prepared.artifacts[batch.variant]
    account.upload_archive(prepared.access.archive_url(artifact), prepared.archives[batch.variant])
    expires_at = datetime.now(UTC) + lifetime(prepared.experiment, batch, prepared.source.workload)
    account.make_model(model_request(batch, artifact, prepared.access, expires_at))
    measure = {"sagemaker": measure_by_job, "load-test": measure_by_load_test}[prepared.experiment.load]
    try:
        measure(prepared, batch, account, folder, progress, sleep)
    except Interrupted:
        account.delete_model(batch.name)
        raise
    account.delete_model(batch.name)


def measure_by_job(
    prepared: Prepared, batch: Batch, account: Account, folder: ExperimentFolder, progress: Progress, sleep: Sleep
) -> None:
    """Creates the batch's job, or goes on with it, and keeps every cell; interrupted, those whose test had ended.

    Raises `Interrupted` or an `AwsUnavailable` that is not about this job.
    """
    cells = prepared.experiment.cells
    try:
        why = _run_job(prepared, batch, account, folder.job(batch), progress, sleep)
    except Interrupted:
        if (folder.job(batch).path / "measurements.json").exists():
            _keep(batch, account, folder, cells, why=None)
        raise
    _keep(batch, account, folder, cells, why or "The job has no result of it.")


def _run_job(
    prepared: Prepared, batch: Batch, account: Account, job: RunFolder, progress: Progress, sleep: Sleep
) -> str | None:
    """Returns why the job failed, or None. `job` keeps what it measured."""
    workload = prepared.source.workload
    plan = job_plan(prepared.experiment, batch, workload, prepared.access.tested_model(workload.name, batch.name))
    try:
        source = JobSource(plan=plan, service=account, sleep=sleep)
        measure_by(source, job, progress, run_subject(prepared, batch))
    except (JobFailed, NoVerdict) as error:
        return str(error)
    return None


def _keep(batch: Batch, account: Account, folder: ExperimentFolder, cells: Iterable[Cell], why: str | None) -> None:
    """Keeps the job's cells and where they were measured; without a `why`, only cells whose test had ended."""
    job = folder.job(batch)
    described = job.description()
    machine = account.tags(described["JobArn"]).get(MEASURED_ON_TAG)
    ended = datetime.fromisoformat(described.get("CompletionTime") or described["LastModifiedTime"])
    folder.keep_origin(
        Origin(
            measured_on="local" if machine else "sagemaker",
            machine=machine or "Amazon SageMaker",
            region=account.region,
            measured_at=ended.isoformat(timespec="seconds"),
        )
    )
    began = datetime.fromisoformat(described["CreationTime"])
    variants = {
        endpoint["EndpointName"]: endpoint.get("VariantName")
        for endpoint in (result["EndpointConfiguration"] for result in results(described, job.steps()))
    }
    tests = (with_gpus(one, variants.get(one.endpoint_name), began, ended, account) for one in _tests(job, batch, why))
    folder.keep_cells(tests, cells)


def _tests(job: RunFolder, batch: Batch, why: str | None) -> Iterator[Measurement]:
    """Yields the cells whose test has ended; with a `why`, also the others, failed for that reason."""
    by_type = {measurement.instance_type: measurement for measurement in job.measurements()}
    cut_short = {
        step["InferenceBenchmark"].get("EndpointConfiguration", {}).get("EndpointName")
        for step in job.steps()
        if "InferenceBenchmark" in step and step["Status"] not in ("COMPLETED", "FAILED")
    }
    for instance_type in batch.instance_types:
        measured = by_type.get(instance_type)
        if measured is not None and measured.endpoint_name not in cut_short:
            yield measured.model_copy(update={"variant": batch.variant})
        elif why is not None:
            yield failed(batch, instance_type, why)
