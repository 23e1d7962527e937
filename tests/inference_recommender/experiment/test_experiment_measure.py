"""An experiment against a fake account: killed at any moment and started again, it repeats no finished cell."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aws_api.expiry import expiry_of
from aws_api.sagemaker import INVOCATIONS_URL_TAG, EndpointDescription
from inference_recommender.experiment import measure
from inference_recommender.experiment.measure import ExperimentRun
from inference_recommender.experiment.plan import Cell, CellBatch
from inference_recommender.experiment.result import ExperimentFolder
from inference_recommender.measure.load_test import LoadTest
from inference_recommender.progress import Progress, ProgressUpdate
from tests.builders import known
from tests.inference_recommender.api import SERIES
from tests.inference_recommender.experiment.experiment_account import (
    IMAGE,
    NAME,
    ROLE,
    TYPES,
    JobAccount,
    prepared,
    run,
)
from tests.inference_recommender.measure.completed import interrupt_once
from tests.inference_recommender.measure.virtual_load import SERVICE_S, virtual_drive
from tests.virtual_time import Network, answering
from workloads import Interrupted, PhasedTraffic
from workloads.traffic import Phase, StoppingConditions

BRIEF = PhasedTraffic(
    type="phases",
    phases=(Phase(initial_users=1, duration_s=1), Phase(initial_users=2, duration_s=2)),
    stop=StoppingConditions(flat_invocations="Continue"),
)


@pytest.fixture
def kept(tmp_path: Path) -> ExperimentFolder:
    return ExperimentFolder(tmp_path / "runs" / NAME)


@pytest.fixture
def account() -> JobAccount:
    return JobAccount()


def jobs_of(account: JobAccount) -> list[str]:
    return [job["JobName"].removeprefix(f"{NAME}-") for job in account.created]


def test_a_job_for_each_variant_measures_every_cell(kept: ExperimentFolder, account: JobAccount) -> None:
    planned = prepared(kept, account, ["ts-base", "ort-base"], TYPES)
    measured = run(planned)
    assert [(each.variant, each.instance_type, each.closed_loop_invocations_per_minute) for each in measured] == [
        ("ts-base", "ml.c5.xlarge", 6_000),
        ("ts-base", "ml.c5.2xlarge", 12_000),
        ("ort-base", "ml.c5.xlarge", 12_000),
        ("ort-base", "ml.c5.2xlarge", 24_000),
    ]
    assert jobs_of(account) == ["ts-base", "ort-base"]
    assert (kept.origin().measured_on, kept.origin().machine) == ("local", "Some CPU with 2 cores")
    assert kept.measurements() == measured, "the folder reads as a run's"
    assert run(planned) == measured
    assert len(account.created) == 2, "a finished experiment creates no job"


def test_models_live_as_long_as_their_jobs_and_serve_the_archive_that_was_built(
    kept: ExperimentFolder, account: JobAccount
) -> None:
    run(prepared(kept, account, ["ort-base"]))
    assert account.models == {}
    (made,) = account.made
    *tags, expiry = made["Tags"]
    expires_at = known(expiry_of([expiry]))
    assert 7200 < (expires_at - datetime.now(UTC)).total_seconds() < 7200 * len(TYPES) + 3600
    assert tags == [{"Key": "workload", "Value": "text_classification"}, {"Key": "variant", "Value": "ort-base"}]
    assert (made["ModelName"], made["ExecutionRoleArn"]) == (f"{NAME}-ort-base", ROLE)
    archive = f"s3://bucket/inference-recommender/text_classification/models/{'a' * 64}.tar.gz"
    assert made["PrimaryContainer"] == {
        "Image": IMAGE,
        "ModelDataUrl": archive,
        "Environment": {
            "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "spellcheck",
            "SAGEMAKER_TRITON_LOG_VERBOSE": "false",
        },
    }


def test_a_variant_that_fails_does_not_end_the_experiment_and_is_measured_again_on_resume(
    kept: ExperimentFolder, account: JobAccount
) -> None:
    account.failing = {"ts-base": "Triton was killed by signal 9."}
    planned = prepared(kept, account, ["ts-base", "ort-base"])
    failed, good = run(planned)
    assert failed.failure_reason == "Triton was killed by signal 9."
    assert good.closed_loop_invocations_per_minute == 12_000
    assert kept.left() == (Cell(variant="ts-base", instance_type="ml.c5.xlarge"),)
    account.failing = {}
    again, kept_one = run(planned)
    assert (again.failure_reason, again.closed_loop_invocations_per_minute) == (None, 6_000)
    assert kept_one == good
    assert jobs_of(account) == ["ts-base", "ort-base", "ts-base-2"]


def test_a_cell_that_proves_nothing_is_measured_again_on_resume(kept: ExperimentFolder, account: JobAccount) -> None:
    account.series_of_tests = SERIES.model_copy(update={"errors": (0.0, 90.0, 0.0, 0.0)})
    planned = prepared(kept, account, ["ort-base"])
    run(planned)
    assert kept.left() == planned.experiment.cells
    account.series_of_tests = SERIES
    account.make_model(account.made[0])  # as if it had been killed before the deletion
    run(planned)
    assert kept.left() == ()
    assert len(account.created) == 2
    assert account.models == {}


def test_ctrl_c_stops_the_job_and_keeps_the_cells_whose_test_had_ended(
    kept: ExperimentFolder, account: JobAccount
) -> None:
    """The second test was cut short: it is made again."""
    account.ending = 0
    planned = prepared(kept, account, ["ort-base"], TYPES)
    with pytest.raises(Interrupted):
        run(planned, sleep=interrupt_once())
    second = planned.experiment.cells[1]
    assert kept.left() == (second,)
    assert account.models == {}
    account.ending = None
    assert [each.closed_loop_invocations_per_minute for each in run(planned)] == [12_000, 24_000]
    tested = [job["InputConfig"]["EndpointConfigurations"] for job in account.created]
    assert tested == [[{"InstanceType": name} for name in TYPES], [{"InstanceType": second.instance_type}]]


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_killed_and_started_again_it_repeats_no_finished_cell(
    kept: ExperimentFolder, account: JobAccount, ended: int
) -> None:
    """Three jobs of two cells. The process is gone when `ended` jobs have ended; the next one runs on without it."""

    def killed(seconds: float) -> None:
        raise SystemExit

    account.ending = ended
    variants = ["ts-base", "ort-base", "ort-ig"]
    with pytest.raises(SystemExit):
        run(prepared(kept, account, variants, TYPES), sleep=killed)
    before = kept.measured()
    assert len(before) == 2 * ended
    account.ending = None
    run(prepared(kept, account, variants, TYPES))
    tested = [
        (job["InputConfig"]["ModelName"], configuration["InstanceType"])
        for job in account.created
        for configuration in job["InputConfig"]["EndpointConfigurations"]
    ]
    models = [f"{NAME}-{variant}" for variant in variants]
    assert tested == list(itertools.product(models, TYPES)), "each cell once, also of the job that ran at the kill"
    assert len(kept.measured()) == 6
    assert kept.measured().items() >= before.items()
    assert account.models == {}


class EndpointAccount(JobAccount):
    """Every endpoint leads to the servers of `network`."""

    def __init__(self) -> None:
        super().__init__()
        self.endpoints: dict[str, Mapping[str, Any]] = {}
        self.made_endpoints: list[str] = []
        self.made_variants: list[Mapping[str, Any]] = []
        self.failing_types: dict[str, str] = {}
        """Instance type → why its endpoints fail."""

    def make_endpoint(self, config: Mapping[str, Any], endpoint: Mapping[str, Any]) -> None:
        self.made_endpoints.append(endpoint["EndpointName"])
        self.made_variants.append(config["ProductionVariants"][0])
        self.endpoints[endpoint["EndpointName"]] = config["ProductionVariants"][0]

    def describe_endpoint(self, name: str) -> dict[str, Any]:
        reason = self.failing_types.get(self.endpoints[name]["InstanceType"])
        status = "InService" if reason is None else "Failed"
        return {"EndpointName": name, "EndpointStatus": status, "FailureReason": reason}

    def delete_endpoint(self, name: str, *_: Any) -> None:
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
    monkeypatch.setattr(measure, "LoadTest", partial(LoadTest, drive=virtual_drive(servers)))
    return servers


@pytest.fixture
def endpoints() -> EndpointAccount:
    return EndpointAccount()


@pytest.fixture
def planned(kept: ExperimentFolder, endpoints: EndpointAccount) -> ExperimentRun:
    """Two cells of one variant under three seconds of traffic, which has enough samples for the objective."""
    made = prepared(kept, endpoints, ["ort-base"], TYPES)
    workload = made.source.workload
    objective = workload.latency_objective.model_copy(update={"percentile": "P50"})
    traffic = {**workload.traffic, "quick": BRIEF}
    made.source.workload = workload.model_copy(update={"traffic": traffic, "objective": objective})
    experiment = made.experiment.model_copy(update={"load": "load-test"})
    types = ("ml.g4dn.12xlarge", "ml.g4dn.xlarge")
    amis = dict.fromkeys(types, "al2023-ami-sagemaker-inference-gpu-4-1")
    access = made.access.model_copy(update={"host_amis": amis})
    kept.begin(experiment, made.source.workload, access)
    return replace(made, experiment=experiment, access=access)


def test_load_tests_measure_each_cell_on_its_endpoint_and_an_ended_one_not_again(
    planned: ExperimentRun, endpoints: EndpointAccount, kept: ExperimentFolder, network: Network
) -> None:
    class Killed(Progress):
        def update(self, update: ProgressUpdate) -> None:
            if len(endpoints.made_endpoints) == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(planned, progress=Killed())
    assert kept.left() == planned.experiment.cells[1:]
    assert len(network.requests) > 50, "the first cell's endpoint was asked"

    measured = run(planned)
    assert [each.instance_type for each in measured] == TYPES
    counts = [sum(count or 0 for count in each.series.invocations) for each in measured if each.series]
    assert len(counts) == 2
    assert min(counts) > 50
    assert endpoints.made_endpoints == [f"{NAME}-ort-base-{number}" for number in (1, 2, 2)]
    assert endpoints.endpoints == endpoints.models == {}, "nothing is left behind"
    assert kept.origin().measured_on == "local"
    assert endpoints.created == [], "no job of Inference Recommender"


def test_a_failed_endpoint_is_a_failed_cell_and_the_others_are_measured(
    planned: ExperimentRun, endpoints: EndpointAccount, network: Network
) -> None:
    endpoints.failing_types = {"ml.c5.xlarge": "The primary container did not pass the ping health check."}
    failed, measured = run(planned)
    assert failed.failure_reason == (
        f"endpoint {NAME}-ort-base-1 is Failed: The primary container did not pass the ping health check. "
        f"See `python -m stacks explain {NAME}-ort-base-1`."
    )
    assert measured.series is not None
    assert endpoints.endpoints == {}


def test_a_gpu_has_its_host_image_and_a_share_of_the_utilisation_of_all(
    planned: ExperimentRun, endpoints: EndpointAccount, network: Network
) -> None:
    endpoints.gpu_utilization_percent = 340.0
    batch = CellBatch(name="b", variant="ort-base", instance_types=("ml.g4dn.12xlarge", "ml.g4dn.xlarge", *TYPES[:1]))
    experiment = planned.experiment.model_copy(update={"cells": batch.cells})
    planned.folder.begin(experiment, planned.source.workload, planned.access)
    assert [each.gpu_utilization_percent for each in run(planned, experiment=experiment)] == [85.0, 340.0, None]
    ami = "al2023-ami-sagemaker-inference-gpu-4-1"
    assert [each.get("InferenceAmiVersion") for each in endpoints.made_variants] == [ami, ami, None]
