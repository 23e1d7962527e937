"""Measures a batch of cells with the load generator, each on a temporary endpoint."""

from datetime import UTC, datetime

from aws_api.errors import is_this_machine
from inference_recommender.experiment.experiment_run import ExperimentRun
from inference_recommender.experiment.folder import ExperimentOrigin
from inference_recommender.experiment.plan import Batch, cell_lifetime, failed
from inference_recommender.experiment.resources import PRODUCTION_VARIANT, EndpointPlan, plan_endpoint
from inference_recommender.measure import load_test
from inference_recommender.measure.load_test import LoadTestFailed, machine_description
from inference_recommender.measure.served import endpoint_served, load_plan
from inference_recommender.measurement import Measurement
from inference_recommender.progress import ProgressUpdate
from inference_recommender.run_folder import RunFolder
from workloads import Interrupted, NoVerdict

POLL_S = 10.0


def measure_by_load_test(run: ExperimentRun, batch: Batch) -> None:
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
            measured = _measured(run, batch, planned, run_folder)
        except (LoadTestFailed, NoVerdict) as error:
            measured = _failed(batch, cell.instance_type, run_folder, str(error))
        finally:
            run.account.delete_endpoint(planned.name)
        measured = run.with_gpus(measured, PRODUCTION_VARIANT, began, datetime.now(UTC))
        run.folder.keep_origin(_origin(run))
        run.folder.keep_cells([measured.model_copy(update={"variant": batch.variant})], prepared.experiment.cells)


def _measured(run: ExperimentRun, batch: Batch, planned: EndpointPlan, run_folder: RunFolder) -> Measurement:
    account, source, experiment = run.account, run.prepared.source, run.prepared.experiment
    try:
        account.make_endpoint(planned.config, planned.endpoint)
        _wait(run, planned.name)
        deployed = account.deployed_endpoint(planned.name)
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted: endpoint {planned.name} was deleted before it was measured.") from None
    served = endpoint_served(deployed, account.region, account.runtime_host())
    traffic = source.traffic(experiment.traffic)
    payloads = (run_folder.path / load_test.PAYLOADS).absolute()
    prepared = load_test.Prepared(
        source=source,
        artifact=run.prepared.artifacts[batch.variant],
        traffic_name=experiment.traffic,
        traffic=traffic,
        served=served,
        plan=load_plan(traffic, source.workload.latency_objective, served, payloads),
        machine=machine_description(),
    )
    return load_test.measure(prepared, load_test.alone, run_folder, run.progress)


def _wait(run: ExperimentRun, name: str) -> None:
    """Returns when the endpoint is in service. Raises `LoadTestFailed`."""
    elapsed_s = 0.0
    while True:
        status, reason = run.account.endpoint_status(name)
        update = ProgressUpdate(job_name=name, status=f"endpoint {status}", elapsed_s=elapsed_s, expected_s=600)
        run.progress.update(update)
        if status == "InService":
            return
        if status != "Creating":
            raise LoadTestFailed(f"Endpoint {name} is {status}: {reason or 'the service gave no reason.'}")
        run.sleep(POLL_S)
        elapsed_s += POLL_S


def _failed(batch: Batch, instance_type: str, run_folder: RunFolder, why: str) -> Measurement:
    """Returns the generator's own measurement, if it got so far, with the reason of the failure."""
    if (run_folder.path / "measurements.json").exists():
        (measured,) = run_folder.measurements()
        return measured.model_copy(update={"failure_reason": measured.failure_reason or why})
    return failed(batch, instance_type, why)


def _origin(run: ExperimentRun) -> ExperimentOrigin:
    local, machine = is_this_machine(run.account.runtime_host()), machine_description()
    return ExperimentOrigin(
        measured_on="local" if local else "sagemaker",
        machine=machine if local else f"SageMaker endpoints, load from {machine}",
        region=run.account.region,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
