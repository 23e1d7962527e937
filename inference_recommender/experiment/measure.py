"""Measures every remaining cell of an experiment, and records each as soon as its test has ended.

A killed experiment continues on the same folder: it waits for a running job, keeps measured cells, and repeats failed
tests. A batch is measured by one job of Inference Recommender, or by the load generator (`by_load_test`). Its model
lives as long as the batch.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from aws_api.sagemaker import MEASURED_ON_TAG
from inference_recommender.experiment.by_load_test import measure_by_load_test
from inference_recommender.experiment.experiment_run import ExperimentRun
from inference_recommender.experiment.folder import ExperimentOrigin
from inference_recommender.experiment.plan import CellBatch, batches, failed, job_plan, lifetime
from inference_recommender.experiment.resources import model_request
from inference_recommender.measure.job import JobFailed, JobSource
from inference_recommender.measure.run import measure as measure_by
from inference_recommender.measurement import Measurement, results
from inference_recommender.run_folder import RunFolder
from workloads import Interrupted, NoVerdict


def measure(run: ExperimentRun) -> tuple[Measurement, ...]:
    """Returns every cell's measurement in the experiment's order. A failed test has a reason instead of figures.

    Raises `Interrupted`, or an `AwsUnavailable` that concerns more than one job. The folder keeps the measurements.
    """
    experiment, folder = run.prepared.experiment, run.folder
    for batch in folder.batches():
        if not all(folder.ended(cell) for cell in batch.cells):
            _measure_batch(run, batch)
    names = [batch.name for batch in folder.batches()]
    left = batches(experiment, folder.left(experiment.cells), names)
    if left and names:
        run.account.delete_model(names[-1])  # a killed run may have left it after its last cell
    for batch in left:
        folder.keep_batch(batch)
        _measure_batch(run, batch)
    return folder.measured(experiment.cells)


def _measure_batch(run: ExperimentRun, batch: CellBatch) -> None:
    prepared, account = run.prepared, run.account
    artifact = prepared.artifacts[batch.variant]
    account.upload_archive(prepared.access.archive_url(artifact), prepared.archives[batch.variant])
    expires_at = datetime.now(UTC) + lifetime(prepared.experiment, batch, prepared.source.workload)
    account.make_model(model_request(batch, artifact, prepared.access, expires_at))
    try:
        if prepared.experiment.load == "load-test":
            measure_by_load_test(run, batch)
        else:
            _measure_by_job(run, batch)
    except Interrupted:
        account.delete_model(batch.name)
        raise
    account.delete_model(batch.name)


def _measure_by_job(run: ExperimentRun, batch: CellBatch) -> None:
    """Creates or continues the batch's job, and records every cell; if interrupted, those whose test has ended.

    Raises `Interrupted`, or an `AwsUnavailable` that is not about this job.
    """
    prepared, job, why = run.prepared, run.folder.job(batch), "The job has no result of it."
    workload = prepared.source.workload
    plan = job_plan(prepared.experiment, batch, workload, prepared.access.tested_model(workload.name, batch.name))
    try:
        source = JobSource(plan=plan, account=run.account, sleep=run.sleep)
        measure_by(source, job, run.progress, run.subject(batch.variant))
    except (JobFailed, NoVerdict) as error:
        why = str(error)
    except Interrupted:
        if (job.path / "measurements.json").exists():
            _record(run, batch, why=None)
        raise
    _record(run, batch, why)


def _record(run: ExperimentRun, batch: CellBatch, why: str | None) -> None:
    """Records the job's cells and their origin; without a `why`, only cells whose test has ended."""
    job = run.folder.job(batch)
    described = job.description()
    machine = run.account.tags(described["JobArn"]).get(MEASURED_ON_TAG)
    ended = datetime.fromisoformat(described.get("CompletionTime") or described["LastModifiedTime"])
    run.folder.keep_origin(
        ExperimentOrigin(
            measured_on="local" if machine else "sagemaker",
            machine=machine or "Amazon SageMaker",
            region=run.account.region,
            measured_at=ended.isoformat(timespec="seconds"),
        )
    )
    began = datetime.fromisoformat(described["CreationTime"])
    endpoints = (result["EndpointConfiguration"] for result in results(described, job.steps()))
    variants = {endpoint["EndpointName"]: endpoint.get("VariantName") for endpoint in endpoints}
    tests = (run.with_gpus(one, variants.get(one.endpoint_name), began, ended) for one in _tests(job, batch, why))
    run.folder.keep_cells(tests, run.prepared.experiment.cells)


def _tests(job: RunFolder, batch: CellBatch, why: str | None) -> Iterator[Measurement]:
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
