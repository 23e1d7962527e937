"""Measures a batch of cells with the load generator, each on a temporary endpoint."""

from datetime import UTC, datetime

from inference_recommender.experiment.experiment_run import ExperimentRun
from inference_recommender.experiment.folder import ExperimentOrigin
from inference_recommender.experiment.plan import CellBatch, cell_lifetime, failed
from inference_recommender.experiment.resources import PRODUCTION_VARIANT, CellEndpoint, plan_endpoint
from inference_recommender.measure.load_test import LoadTest, LoadTestFailed
from inference_recommender.measure.run import measure
from inference_recommender.measure.system import SystemUnderTest, system_of_endpoint
from inference_recommender.measurement import Measurement
from inference_recommender.progress import ProgressUpdate
from inference_recommender.run_folder import RunFolder
from workloads import Interrupted, NoVerdict

POLL_S = 10.0


def measure_by_load_test(run: ExperimentRun, batch: CellBatch) -> None:
    """Measures each remaining cell of the batch, and records it before the next one starts.

    Uses the endpoint that a killed run left behind. Raises `Interrupted` or an `AwsUnavailable`.
    """
    prepared = run.prepared
    for number, cell in enumerate(batch.cells, start=1):
        if run.folder.ended(cell):
            continue
        began = datetime.now(UTC)
        expires_at = began + cell_lifetime(prepared.experiment, prepared.source.workload)
        planned = plan_endpoint(batch.name, number, cell.instance_type, prepared.access.host_ami, expires_at)
        run_folder = RunFolder(run.folder.job(batch).path / cell.instance_type)
        try:
            system = _started(run, planned)
            run.folder.keep_origin(_origin(system))
            measured = _measured(run, batch, system, run_folder)
        except (LoadTestFailed, NoVerdict) as error:
            measured = _failed(batch, cell.instance_type, run_folder, str(error))
        finally:
            run.account.delete_endpoint(planned.name)
        measured = run.with_gpus(measured, PRODUCTION_VARIANT, began, datetime.now(UTC))
        run.folder.keep_cells([measured.model_copy(update={"variant": batch.variant})], prepared.experiment.cells)


def _started(run: ExperimentRun, planned: CellEndpoint) -> SystemUnderTest:
    try:
        run.account.make_endpoint(planned.config, planned.endpoint)
        _wait(run, planned.name)
        return system_of_endpoint(run.account.endpoint_description(planned.name), run.account.region)
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted: endpoint {planned.name} was deleted before it was measured.") from None


def _measured(run: ExperimentRun, batch: CellBatch, system: SystemUnderTest, run_folder: RunFolder) -> Measurement:
    source, experiment = run.prepared.source, run.prepared.experiment
    test = LoadTest(
        system=system,
        traffic=source.traffic(experiment.traffic),
        request_timeout_s=source.workload.recommender.request_timeout_s,
    )
    (measured,) = measure(test, run_folder, run.progress, run.subject(batch.variant))
    return measured


def _wait(run: ExperimentRun, name: str) -> None:
    """Returns when the endpoint is in service. Raises `LoadTestFailed`."""
    elapsed_s = 0.0
    while True:
        described = run.account.describe_endpoint(name)
        status, reason = described["EndpointStatus"], described.get("FailureReason")
        update = ProgressUpdate(job_name=name, status=f"endpoint {status}", elapsed_s=elapsed_s, expected_s=600)
        run.progress.update(update)
        if status == "InService":
            return
        if status != "Creating":
            raise LoadTestFailed(f"Endpoint {name} is {status}: {reason or 'the service gave no reason.'}")
        run.sleep(POLL_S)
        elapsed_s += POLL_S


def _failed(batch: CellBatch, instance_type: str, run_folder: RunFolder, why: str) -> Measurement:
    """Returns the generator's own measurement, if it got so far, with the reason of the failure."""
    if (run_folder.path / "measurements.json").exists():
        (measured,) = run_folder.measurements()
        return measured.model_copy(update={"failure_reason": measured.failure_reason or why})
    return failed(batch, instance_type, why)


def _origin(system: SystemUnderTest) -> ExperimentOrigin:
    return ExperimentOrigin(
        measured_on="local" if system.stands_in else "sagemaker",
        machine=system.machine,
        region=system.region,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
