"""A batch of cells measured by our own generator, each on an endpoint that is made for it and deleted after it."""

from datetime import UTC, datetime

from inference_recommender.experiment.account import Account, Prepared, with_gpus
from inference_recommender.experiment.folder import ExperimentFolder, Origin
from inference_recommender.experiment.plan import Batch, cell_lifetime, failed
from inference_recommender.experiment.resources import PRODUCTION_VARIANT, EndpointPlan, plan_endpoint
from inference_recommender.measure.job_service import Sleep
from inference_recommender.measure.load_test import LoadTest, LoadTestFailed
from inference_recommender.measure.run import RunSubject, measure
from inference_recommender.measure.system import SystemUnderTest, system_of_endpoint
from inference_recommender.measurement import Measurement
from inference_recommender.progress import Progress, ProgressUpdate
from inference_recommender.run_folder import RunFolder
from workloads import Interrupted, NoVerdict

POLL_S = 10.0


def measure_by_load_test(
    prepared: Prepared, batch: Batch, account: Account, folder: ExperimentFolder, progress: Progress, sleep: Sleep
) -> None:
    """Measures each cell of the batch that has not ended, and keeps it before the next one is begun.

    An endpoint that a killed run left behind is used, and deleted after its cell. Raises `Interrupted` or an
    `AwsUnavailable`.
    """
    for number, cell in enumerate(batch.cells, start=1):
        if folder.ended(cell):
            continue
        began = datetime.now(UTC)
        expires_at = began + cell_lifetime(prepared.experiment, prepared.source.workload)
        planned = plan_endpoint(batch.name, number, cell.instance_type, prepared.access.host_ami, expires_at)
        run_folder = RunFolder(folder.job(batch).path / cell.instance_type)
        try:
            system = _started(planned, account, progress, sleep)
            _keep_origin(system, folder)
            measured = _measured(prepared, batch, system, run_folder, progress)
        except (LoadTestFailed, NoVerdict) as error:
            measured = _failed(batch, cell.instance_type, run_folder, str(error))
        finally:
            account.delete_endpoint(planned.name)
        measured = with_gpus(measured, PRODUCTION_VARIANT, began, datetime.now(UTC), account)
        folder.keep_cells([measured.model_copy(update={"variant": batch.variant})], prepared.experiment.cells)


def _started(planned: EndpointPlan, account: Account, progress: Progress, sleep: Sleep) -> SystemUnderTest:
    try:
        account.make_endpoint(planned.config, planned.endpoint)
        _wait(planned.name, account, progress, sleep)
        return system_of_endpoint(account.endpoint_description(planned.name), account.region)
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted: endpoint {planned.name} was deleted before it was measured.") from None


def _measured(
    prepared: Prepared, batch: Batch, system: SystemUnderTest, run_folder: RunFolder, progress: Progress
) -> Measurement:
    test = LoadTest(
        system=system,
        traffic=prepared.source.traffic(prepared.experiment.traffic),
        request_timeout_s=prepared.source.workload.recommender.request_timeout_s,
    )
    (measured,) = measure(test, run_folder, progress, run_subject(prepared, batch))
    return measured


def run_subject(prepared: Prepared, batch: Batch) -> RunSubject:
    return RunSubject(
        workload=prepared.source.workload,
        payloads=prepared.source.payloads(),
        artifact=prepared.artifacts[batch.variant],
        traffic=prepared.experiment.traffic,
    )


def _wait(name: str, account: Account, progress: Progress, sleep: Sleep) -> None:
    """Returns when the endpoint is in service. Raises `LoadTestFailed`."""
    elapsed_s = 0.0
    while True:
        described = account.describe_endpoint(name)
        status, reason = described["EndpointStatus"], described.get("FailureReason")
        progress.update(ProgressUpdate(job_name=name, status=f"endpoint {status}", elapsed_s=elapsed_s, expected_s=600))
        if status == "InService":
            return
        if status != "Creating":
            raise LoadTestFailed(f"Endpoint {name} is {status}: {reason or 'the service gave no reason.'}")
        sleep(POLL_S)
        elapsed_s += POLL_S


def _failed(batch: Batch, instance_type: str, run_folder: RunFolder, why: str) -> Measurement:
    """Keeps the generator's own measurement where the load came so far: it tells a run that proves nothing."""
    if (run_folder.path / "measurements.json").exists():
        (measured,) = run_folder.measurements()
        return measured.model_copy(update={"failure_reason": measured.failure_reason or why})
    return failed(batch, instance_type, why)


def _keep_origin(system: SystemUnderTest, folder: ExperimentFolder) -> None:
    folder.keep_origin(
        Origin(
            measured_on="local" if system.stands_in else "sagemaker",
            machine=system.machine,
            region=system.region,
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
    )
