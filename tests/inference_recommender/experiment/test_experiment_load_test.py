"""An experiment by load tests: each cell has its own endpoint, and is recorded before the next one."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import validate_parameters

from aws_api.expiry import expiry_of
from aws_api.sagemaker import INVOCATIONS_URL_TAG, EndpointDescription
from inference_recommender.experiment import by_load_test
from inference_recommender.experiment.experiment_run import ExperimentRun, PreparedExperiment
from inference_recommender.experiment.folder import ExperimentFolder
from inference_recommender.experiment.plan import CellBatch, failed
from inference_recommender.experiment.resources import plan_endpoint
from inference_recommender.measure.load_test import LoadTest
from inference_recommender.progress import ProgressUpdate, Silent
from tests.inference_recommender.experiment.experiment_account import DiskAccount, prepared, run
from tests.inference_recommender.measure.virtual_load import SERVICE_S, virtual_drive
from tests.virtual_time import Network, answering
from workloads import Interrupted, PhasedTraffic
from workloads.traffic import Phase, StoppingConditions

TYPES = ["ml.c5.xlarge", "ml.c5.2xlarge"]
BRIEF = PhasedTraffic(
    type="phases",
    phases=(Phase(initial_users=1, duration_s=1), Phase(initial_users=2, duration_s=2)),
    stop=StoppingConditions(flat_invocations="Continue"),
)
"""Three seconds in two phases."""


class EndpointAccount(DiskAccount):
    """Every endpoint leads to the servers of `network`."""

    def __init__(self, state: Path) -> None:
        super().__init__(state)
        self.endpoints: dict[str, Mapping[str, Any]] = {}
        self.made_endpoints: list[str] = []
        self.status: dict[str, tuple[str, str | None]] = {}
        """Instance type → the status of its endpoint, where that is not InService."""

    def make_endpoint(self, config: Mapping[str, Any], endpoint: Mapping[str, Any]) -> None:
        if endpoint["EndpointName"] not in self.endpoints:
            self.made_endpoints.append(endpoint["EndpointName"])
            self.endpoints[endpoint["EndpointName"]] = config["ProductionVariants"][0]

    def describe_endpoint(self, name: str) -> dict[str, Any]:
        status, reason = self.status.get(self.endpoints[name]["InstanceType"], ("InService", None))
        return {"EndpointName": name, "EndpointStatus": status, "FailureReason": reason}

    def delete_endpoint(self, name: str) -> None:
        self.endpoints.pop(name, None)

    def endpoint_description(self, name: str) -> EndpointDescription:
        return EndpointDescription(
            endpoint=self.describe_endpoint(name),
            config={"ProductionVariants": [self.endpoints[name]]},
            model={},
            tags=[{"Key": INVOCATIONS_URL_TAG, "Value": "http://127.0.0.1:1/invocations"}],
            scalable_targets=[],
        )


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    """The servers behind every endpoint, asked by a generator in virtual time."""
    servers = Network(answering(SERVICE_S))
    monkeypatch.setattr(by_load_test, "LoadTest", partial(LoadTest, drive=virtual_drive(servers)))
    return servers


@pytest.fixture
def kept(tmp_path: Path) -> ExperimentFolder:
    return ExperimentFolder(tmp_path / "runs" / "text-classification-experiment-1")


@pytest.fixture
def account(tmp_path: Path) -> EndpointAccount:
    return EndpointAccount(tmp_path / "state")


@pytest.fixture
def planned(kept: ExperimentFolder) -> PreparedExperiment:
    """Two cells of one variant under three seconds of traffic, which has enough samples for the objective."""
    made = prepared(kept, ["ort-base"], TYPES)
    workload = made.source.workload
    changed = {
        "traffic": {**workload.traffic, "quick": BRIEF},
        "objective": workload.latency_objective.model_copy(update={"percentile": "P50"}),
    }
    made.source.workload = workload.model_copy(update=changed)
    experiment = made.experiment.model_copy(update={"load": "load-test"})
    access = made.access.model_copy(update={"host_ami": "al2023-ami-sagemaker-inference-gpu-4-1"})
    kept.begin(experiment, made.source.workload, access)
    return PreparedExperiment(
        experiment=experiment,
        source=made.source,
        artifacts=made.artifacts,
        archives=made.archives,
        access=access,
    )


def test_killed_between_two_cells_the_first_is_not_measured_again(
    planned: PreparedExperiment, account: EndpointAccount, kept: ExperimentFolder, network: Network
) -> None:
    class Killed(Silent):
        def update(self, update: ProgressUpdate) -> None:
            if len(account.made_endpoints) == 2:
                raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run(planned, account, kept, Killed(), sleep=lambda seconds: None)
    first, second = planned.experiment.cells
    assert kept.ended(first)
    assert kept.left(planned.experiment.cells) == (second,)
    assert len(network.requests) > 50, "the first cell's endpoint was asked"

    measured = run(planned, account, kept, sleep=lambda seconds: None)
    assert [each.instance_type for each in measured] == TYPES
    assert all(
        each.series is not None and sum(count or 0 for count in each.series.invocations) > 50 for each in measured
    )
    name = "text-classification-experiment-1-ort-base"
    assert account.made_endpoints == [f"{name}-1", f"{name}-2", f"{name}-2"]
    assert account.endpoints == account.models == {}, "nothing is left behind"
    assert kept.origin().measured_on == "local"
    assert account.created == [], "no job of Inference Recommender"


def test_the_utilisation_of_a_gpu_is_that_of_all_gpus_over_their_number(
    planned: PreparedExperiment, account: EndpointAccount, kept: ExperimentFolder
) -> None:
    account.gpu_utilization_percent = 340.0
    now, batch = datetime.now(UTC), CellBatch(name="b", variant="trt-base", instance_types=())
    measuring = ExperimentRun(prepared=planned, account=account, folder=kept, progress=Silent())
    of = [
        measuring.with_gpus(failed(batch, name, "why"), "AllTraffic", now, now).gpu_utilization_percent
        for name in ("ml.g4dn.12xlarge", "ml.g4dn.xlarge", "ml.c5.xlarge")
    ]
    assert of == [85.0, 340.0, None]


def test_a_failed_endpoint_is_a_failed_cell_and_the_others_are_measured(
    planned: PreparedExperiment, account: EndpointAccount, kept: ExperimentFolder, network: Network
) -> None:
    account.status = {"ml.c5.xlarge": ("Failed", "The primary container did not pass the ping health check.")}
    failed, measured = run(planned, account, kept, sleep=lambda seconds: None)
    assert failed.failure_reason == (
        "Endpoint text-classification-experiment-1-ort-base-1 is Failed: "
        "The primary container did not pass the ping health check."
    )
    assert measured.series is not None
    assert account.endpoints == {}


def test_the_requests_of_an_endpoint_are_the_services_and_only_a_gpu_gets_the_host_image() -> None:
    noon = datetime(2026, 11, 22, 12, tzinfo=UTC)
    gpu = plan_endpoint("reviews-trt", 1, "ml.g5.xlarge", "al2023-ami-sagemaker-inference-gpu-4-1", noon)
    cpu = plan_endpoint("r" * 63, 12, "ml.c5.xlarge", "al2023-ami-sagemaker-inference-gpu-4-1", noon)
    model = botocore.session.get_session().get_service_model("sagemaker")
    for planned in (gpu, cpu):
        for operation, request in (("CreateEndpointConfig", planned.config), ("CreateEndpoint", planned.endpoint)):
            shape = model.operation_model(operation).input_shape
            assert shape is not None
            validate_parameters(request, shape)
            assert expiry_of(request["Tags"]) == noon
    assert gpu.config["ProductionVariants"][0]["InferenceAmiVersion"] == "al2023-ami-sagemaker-inference-gpu-4-1"
    assert "InferenceAmiVersion" not in cpu.config["ProductionVariants"][0]
    assert (len(cpu.name), cpu.name[-3:]) == (63, "-12")
