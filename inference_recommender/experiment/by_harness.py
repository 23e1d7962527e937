"""A batch of cells measured by our own generator, each on an endpoint that is made for it and deleted after it."""

from datetime import UTC, datetime

from inference_recommender.experiment.account import Account
from inference_recommender.experiment.endpoint import EndpointPlan, plan_endpoint
from inference_recommender.experiment.errors import EndpointFailed
from inference_recommender.experiment.folder import ExperimentFolder, Origin
from inference_recommender.experiment.plan import Batch, failed
from inference_recommender.experiment.prepared import Prepared
from inference_recommender.jobs.service import Sleep
from inference_recommender.load_test import load_test as harness
from inference_recommender.load_test import machine
from inference_recommender.load_test.errors import GeneratorFailed, TargetFailed
from inference_recommender.load_test.plan import load_plan
from inference_recommender.load_test.served import Served, endpoint_served, is_this_machine
from inference_recommender.measurement import Measurement
from inference_recommender.progress import Progress, ProgressUpdate
from inference_recommender.run_folder import RunFolder
from workloads import Interrupted, NoVerdict

POLL_S = 10.0


def measure_by_harness(
    prepared: Prepared, batch: Batch, account: Account, kept: ExperimentFolder, progress: Progress, sleep: Sleep
) -> None:
    """Each cell of the batch that has not ended, kept before the next one is begun.

    An endpoint that a killed run left behind is taken as it is, and deleted after its cell. Raises `Interrupted` or an
    `AwsUnavailable`.
    """
    for number, cell in enumerate(batch.cells, start=1):
        if kept.ended(cell):
            continue
        planned = plan_endpoint(batch.name, number, cell.instance_type, prepared.access.host_ami)
        run_folder = RunFolder(kept.job(batch).path / cell.instance_type)
        try:
            measured = _measured(prepared, batch, planned, account, run_folder, progress, sleep)
        except (EndpointFailed, GeneratorFailed, NoVerdict, TargetFailed) as error:
            measured = _failed(batch, cell.instance_type, run_folder, str(error))
        finally:
            account.delete_endpoint(planned.name)
        _keep_origin(account, kept)
        kept.keep_cells([measured.model_copy(update={"variant": batch.variant})], prepared.experiment.cells)


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
    return harness.measure(_prepared(prepared, batch, served, run_folder), harness.alone, run_folder, progress)


def _prepared(prepared: Prepared, batch: Batch, served: Served, run_folder: RunFolder) -> harness.Prepared:
    traffic = prepared.source.traffic(prepared.experiment.traffic)
    payloads = (run_folder.path / harness.PAYLOADS).absolute()
    return harness.Prepared(
        source=prepared.source,
        artifact=prepared.artifacts[batch.variant],
        traffic_name=prepared.experiment.traffic,
        traffic=traffic,
        served=served,
        plan=load_plan(traffic, prepared.source.workload.latency_objective, served, payloads),
        machine=machine.description(),
    )


def _wait(name: str, account: Account, progress: Progress, sleep: Sleep) -> None:
    """Until the endpoint is in service. Raises `EndpointFailed`."""
    elapsed_s = 0.0
    while True:
        status, reason = account.endpoint_status(name)
        progress.update(ProgressUpdate(job_name=name, status=f"endpoint {status}", elapsed_s=elapsed_s, expected_s=600))
        if status == "InService":
            return
        if status != "Creating":
            raise EndpointFailed(name, status, reason)
        sleep(POLL_S)
        elapsed_s += POLL_S


def _failed(batch: Batch, instance_type: str, run_folder: RunFolder, why: str) -> Measurement:
    """With the generator's own reason, where the load came so far: by it a reader tells what proves nothing."""
    if (run_folder.path / "measurements.json").exists():
        (one,) = run_folder.measurements()
        return one.model_copy(update={"failure_reason": one.failure_reason or why})
    return failed(batch, instance_type, why)


def _keep_origin(account: Account, kept: ExperimentFolder) -> None:
    local = is_this_machine(account.runtime_host())
    kept.keep_origin(
        Origin(
            measured_on="local" if local else "sagemaker",
            machine=machine.description() if local else f"endpoints of SageMaker, asked from {machine.description()}",
            region=account.region,
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
    )
