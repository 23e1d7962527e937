"""A batch of cells measured by our own generator, each on an endpoint that is made for it and deleted after it."""

from datetime import UTC, datetime

from aws_api.errors import is_this_machine
from inference_recommender.experiment.account import Account, Prepared, with_gpus
from inference_recommender.experiment.folder import ExperimentFolder, Origin
from inference_recommender.experiment.plan import Batch, cell_lifetime, failed
from inference_recommender.experiment.resources import PRODUCTION_VARIANT, EndpointPlan, plan_endpoint
from inference_recommender.measure import load_test
from inference_recommender.measure.job_wait import Sleep
from inference_recommender.measure.load_test import LoadTestFailed, machine_description
from inference_recommender.measure.served import Served, endpoint_served, load_plan
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
            measured = _measured(prepared, batch, planned, account, run_folder, progress, sleep)
        except (LoadTestFailed, NoVerdict) as error:
            measured = _failed(batch, cell.instance_type, run_folder, str(error))
        finally:
            account.delete_endpoint(planned.name)
        measured = with_gpus(measured, PRODUCTION_VARIANT, began, datetime.now(UTC), account)
        _keep_origin(account, folder)
        folder.keep_cells([measured.model_copy(update={"variant": batch.variant})], prepared.experiment.cells)


def _measured(
    prepared: Prepared,
    batch: Batch,
    planned: EndpointPlan,
    account: Account,
    run_folder: RunFolder,
    progress: Progress,
    sleep: Sleep,
) -> Measurement:
    try:
        account.make_endpoint(planned.config, planned.endpoint)
        _wait(planned.name, account, progress, sleep)
        deployed = account.deployed_endpoint(planned.name)
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted: endpoint {planned.name} was deleted before it was measured.") from None
    served = endpoint_served(deployed, account.region, account.runtime_host())
    return load_test.measure(_prepared(prepared, batch, served, run_folder), load_test.alone, run_folder, progress)


def _prepared(prepared: Prepared, batch: Batch, served: Served, run_folder: RunFolder) -> load_test.Prepared:
    traffic = prepared.source.traffic(prepared.experiment.traffic)
    payloads = (run_folder.path / load_test.PAYLOADS).absolute()
    return load_test.Prepared(
        source=prepared.source,
        artifact=prepared.artifacts[batch.variant],
        traffic_name=prepared.experiment.traffic,
        traffic=traffic,
        served=served,
        plan=load_plan(traffic, prepared.source.workload.latency_objective, served, payloads),
        machine=machine_description(),
    )


def _wait(name: str, account: Account, progress: Progress, sleep: Sleep) -> None:
    """Returns when the endpoint is in service. Raises `LoadTestFailed`."""
    elapsed_s = 0.0
    while True:
        status, reason = account.endpoint_status(name)
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


def _keep_origin(account: Account, folder: ExperimentFolder) -> None:
    local = is_this_machine(account.runtime_host())
    machine = machine_description()
    folder.keep_origin(
        Origin(
            measured_on="local" if local else "sagemaker",
            machine=machine if local else f"endpoints of SageMaker, asked from {machine}",
            region=account.region,
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
    )
