"""Measures every remaining cell of an experiment, and records each as soon as its test has ended.

A killed experiment continues on the same folder: it waits for a running job, keeps measured cells, and repeats failed
tests. A batch is measured by one job of Inference Recommender, or by the load generator, cell by cell on temporary
endpoints. Its model lives as long as the batch.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aws_api.errors import AwsUnavailable
from aws_api.sagemaker import SageMakerAccount
from aws_api.temporary_endpoint import VARIANT, EndpointSpec, temporary_endpoint
from inference_recommender.experiment.plan import (
    LONGEST_NAME,
    CellBatch,
    Experiment,
    ExperimentAccess,
    batches,
    job_plan,
    lifetime,
)
from inference_recommender.experiment.result import ExperimentFolder
from inference_recommender.measure.job import JobFailed, JobSource
from inference_recommender.measure.job_service import Sleep
from inference_recommender.measure.load_test import LoadTest
from inference_recommender.measure.run import RunSubject, begin_and_measure
from inference_recommender.measure.system import system_of_endpoint
from inference_recommender.measurement import Measurement, results
from inference_recommender.progress import Progress, ProgressUpdate
from inference_recommender.run_folder import RunFolder
from workloads import Interrupted, ModelArtifact, NoVerdict, Unavailable, WorkloadFolder
from workloads.instances import instance_shape


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentRun:
    """An experiment with its account and its folder."""

    experiment: Experiment
    source: WorkloadFolder
    artifacts: Mapping[str, ModelArtifact]
    """Keyed by variant."""
    archives: Mapping[str, Path]
    """The model archives, keyed by variant."""
    access: ExperimentAccess
    account: SageMakerAccount
    folder: ExperimentFolder
    progress: Progress
    sleep: Sleep = time.sleep

    def subject(self, variant: str) -> RunSubject:
        return RunSubject(
            workload=self.experiment.workload_of(variant, self.source.workload),
            payloads=self.source.payloads(),
            artifact=self.artifacts[variant],
            traffic=self.experiment.traffic,
        )

    def with_gpus(self, measured: Measurement, variant: str, began: datetime, ended: datetime) -> Measurement:
        """Adds the utilisation of a GPU, if the instance has any and CloudWatch has the metric."""
        shape = instance_shape(measured.instance_type)
        if not shape or not shape.gpus:
            return measured
        of_all = self.account.gpu_utilization(measured.endpoint_name, variant, began, ended)
        of_one = None if of_all is None else of_all / shape.gpus
        return measured.model_copy(update={"gpu_utilization_percent": of_one})


def measure_cells(run: ExperimentRun) -> tuple[Measurement, ...]:
    """Returns every cell's measurement in the experiment's order; a failed test has a reason. The folder keeps them.

    Raises `Interrupted`, or an `AwsUnavailable` that concerns more than one job.
    """
    folder = run.folder
    for batch in folder.batches():
        if not folder.measured().keys() >= set(batch.cells):
            _measure_batch(run, batch)
    names = [batch.name for batch in folder.batches()]
    left = batches(run.experiment, folder.left(), names)
    if left and names:
        run.account.delete_model(names[-1])  # a killed run may have left it after its last cell
    for batch in left:
        folder.keep_batch(batch)
        _measure_batch(run, batch)
    measured = folder.measured()
    return tuple(measured[cell] for cell in run.experiment.cells)


def _measure_batch(run: ExperimentRun, batch: CellBatch) -> None:
    account, artifact = run.account, run.artifacts[batch.variant]
    account.upload_archive(run.access.archive_url(artifact), run.archives[batch.variant])
    expires_at = datetime.now(UTC) + lifetime(run.experiment, run.source.workload, len(batch.cells))
    account.make_model(run.access.model_request(batch, artifact, expires_at))
    try:
        (_measure_by_load_tests if run.experiment.load == "load-test" else _measure_by_job)(run, batch)
    except (KeyboardInterrupt, Interrupted):
        account.delete_model(batch.name)
        raise
    account.delete_model(batch.name)


def _measure_by_job(run: ExperimentRun, batch: CellBatch) -> None:
    """Creates or continues the batch's job, and records every cell; if interrupted, those whose test has ended."""
    job, why = run.folder.job(batch), "The job has no result of it."
    workload = run.experiment.workload_of(batch.variant, run.source.workload)
    plan = job_plan(run.experiment, batch, workload, run.access.tested_model(workload, batch.name))
    source = JobSource(plan=plan, account=run.account, sleep=run.sleep)
    interrupted: Interrupted | None = None
    try:
        begin_and_measure(source, job, run.progress, run.subject(batch.variant))
    except (JobFailed, NoVerdict) as error:
        why = str(error)
    except Interrupted as error:
        if not (job.path / "measurements.json").exists():
            raise
        interrupted = error
    described, origin = job.description(), source.provenance(job)
    changes = {} if origin.measured_on == "local" else {"machine": "Amazon SageMaker"}
    run.folder.keep_origin(origin.model_copy(update=changes))
    began, ended = (datetime.fromisoformat(time) for time in (described["CreationTime"], origin.measured_at))
    endpoints = (result["EndpointConfiguration"] for result in results(described, job.steps()))
    variants = {endpoint["EndpointName"]: endpoint.get("VariantName", VARIANT) for endpoint in endpoints}
    run.folder.keep_cells(
        run.with_gpus(one, variants.get(one.endpoint_name, VARIANT), began, ended)
        for one in _tests(job, batch, None if interrupted else why)
    )
    if interrupted:
        raise interrupted


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
            yield batch.failed(instance_type, why)


def _measure_by_load_tests(run: ExperimentRun, batch: CellBatch) -> None:
    """Measures each remaining cell on an endpoint, perhaps one that a killed run left behind, and records it."""
    for number, cell in enumerate(batch.cells, start=1):
        if cell in run.folder.measured():
            continue
        began, job = datetime.now(UTC), RunFolder(run.folder.job(batch).path / cell.instance_type)
        try:
            measured = _measure_on_endpoint(run, batch, f"{batch.name[: LONGEST_NAME - 3]}-{number}", job)
        except AwsUnavailable:
            raise
        except (Unavailable, NoVerdict) as error:
            measured = batch.failed(cell.instance_type, str(error))
            if (job.path / "measurements.json").exists():  # the generator's own, with the reason
                (own,) = job.measurements()
                measured = own.model_copy(update={"failure_reason": own.failure_reason or str(error)})
        measured = run.with_gpus(measured, VARIANT, began, datetime.now(UTC))
        run.folder.keep_cells([measured.model_copy(update={"variant": batch.variant})])


def _measure_on_endpoint(run: ExperimentRun, batch: CellBatch, name: str, job: RunFolder) -> Measurement:
    workload, host_ami = run.source.workload, run.access.host_amis.get(job.path.name)
    spec = EndpointSpec(
        name=name,
        model=batch.name,
        variant={"InstanceType": job.path.name, **({"InferenceAmiVersion": host_ami} if host_ami else {})},
        lifetime_s=lifetime(run.experiment, workload).total_seconds(),
    )
    run.progress.update(ProgressUpdate(job_name=name, status="endpoint Creating", elapsed_s=0.0, expected_s=600))
    with temporary_endpoint(run.account, spec, run.progress.say, run.sleep):
        system = system_of_endpoint(run.account.endpoint_description(name), run.account.region)
        test = LoadTest(
            system=system,
            traffic=run.source.traffic(run.experiment.traffic),
            request_timeout_s=workload.recommender.request_timeout_s,
        )
        try:
            (measured,) = begin_and_measure(test, job, run.progress, run.subject(batch.variant))
        finally:
            if job.begun:
                run.folder.keep_origin(test.provenance(job))
    return measured
