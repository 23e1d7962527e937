"""An experiment against a fake account: killed at any moment and started again, it repeats no finished cell."""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aws_api.expiry import expiry_of
from inference_recommender.experiment.cells import Cell
from inference_recommender.experiment.folder import ExperimentFolder
from tests.inference_recommender.api import SERIES
from tests.inference_recommender.experiment.experiment_account import IMAGE, ROLE, DiskAccount, prepared, run
from workloads import ROOT, Interrupted

TYPES = ["ml.c5.xlarge", "ml.c5.2xlarge"]


@pytest.fixture
def kept(tmp_path: Path) -> ExperimentFolder:
    return ExperimentFolder(tmp_path / "runs" / "text-classification-experiment-1")


@pytest.fixture
def account(tmp_path: Path) -> DiskAccount:
    return DiskAccount(tmp_path / "state")


def test_a_job_for_each_variant_measures_every_cell(kept: ExperimentFolder, account: DiskAccount) -> None:
    planned = prepared(kept, ["ts-base", "ort-base"], TYPES)
    measured = run(planned, account, kept)
    assert [(each.variant, each.instance_type, each.max_invocations_per_minute) for each in measured] == [
        ("ts-base", "ml.c5.xlarge", 6_000),
        ("ts-base", "ml.c5.2xlarge", 12_000),
        ("ort-base", "ml.c5.xlarge", 12_000),
        ("ort-base", "ml.c5.2xlarge", 24_000),
    ]
    assert [job["request"]["JobName"] for job in account.created] == [
        "text-classification-experiment-1-ts-base",
        "text-classification-experiment-1-ort-base",
    ]
    assert kept.origin().model_dump(exclude={"measured_at"}) == {
        "measured_on": "local",
        "machine": "Some CPU with 2 cores",
        "region": "us-east-1",
    }


def test_models_live_as_long_as_their_jobs_and_serve_the_archive_that_was_built(
    kept: ExperimentFolder, account: DiskAccount
) -> None:
    run(prepared(kept, ["ort-base"]), account, kept)
    assert account.models == {}
    (made,) = account.made
    *tags, expiry = made["Tags"]
    expires_at = expiry_of([expiry])
    assert expires_at is not None
    lives_s = (expires_at - datetime.now(UTC)).total_seconds()
    assert 7200 < lives_s < 7200 * len(TYPES) + 3600
    assert [{**made, "Tags": tags}] == [
        {
            "ModelName": "text-classification-experiment-1-ort-base",
            "ExecutionRoleArn": ROLE,
            "EnableNetworkIsolation": True,
            "PrimaryContainer": {
                "Image": IMAGE,
                "ModelDataUrl": f"s3://bucket/inference-recommender/text_classification/models/{'a' * 64}.tar.gz",
                "Environment": {
                    "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "spellcheck",
                    "SAGEMAKER_TRITON_LOG_VERBOSE": "false",
                },
            },
            "Tags": [{"Key": "workload", "Value": "text_classification"}, {"Key": "variant", "Value": "ort-base"}],
        }
    ]


def test_a_variant_that_fails_does_not_end_the_experiment_and_is_measured_again_on_resume(
    kept: ExperimentFolder, account: DiskAccount
) -> None:
    account.failing = {"ts-base": "Triton was killed by signal 9."}
    planned = prepared(kept, ["ts-base", "ort-base"])
    failed, good = run(planned, account, kept)
    assert failed.failure_reason == "Triton was killed by signal 9."
    assert good.max_invocations_per_minute == 12_000
    assert kept.left(planned.experiment.cells) == (Cell(variant="ts-base", instance_type="ml.c5.xlarge"),)
    account.failing = {}
    again, kept_one = run(planned, account, kept)
    assert (again.failure_reason, again.max_invocations_per_minute) == (None, 6_000)
    assert kept_one == good
    assert [job["request"]["JobName"] for job in account.created] == [
        "text-classification-experiment-1-ts-base",
        "text-classification-experiment-1-ort-base",
        "text-classification-experiment-1-ts-base-2",
    ]


def test_a_cell_that_proves_nothing_is_measured_again_on_resume(kept: ExperimentFolder, account: DiskAccount) -> None:
    account.series_of_tests = SERIES.model_copy(update={"errors": (0.0, 90.0, 0.0, 0.0)})
    planned = prepared(kept, ["ort-base"])
    run(planned, account, kept)
    assert kept.left(planned.experiment.cells) == planned.experiment.cells
    account.series_of_tests = SERIES
    account.make_model(account.made[0])  # as if it had been killed before the deletion
    run(planned, account, kept)
    assert kept.left(planned.experiment.cells) == ()
    assert len(account.created) == 2
    assert account.models == {}


def test_a_finished_experiment_creates_no_job(kept: ExperimentFolder, account: DiskAccount) -> None:
    planned = prepared(kept, ["ort-base"])
    first = run(planned, account, kept)
    assert run(planned, account, kept) == first
    assert len(account.created) == 1


def test_ctrl_c_stops_the_job_and_keeps_the_cells_whose_test_had_ended(
    kept: ExperimentFolder, account: DiskAccount
) -> None:
    """The second test was cut short: it is made again."""
    account.ending = 0

    presses = iter([KeyboardInterrupt()])

    def pressed(seconds: float) -> None:
        if press := next(presses, None):
            raise press

    planned = prepared(kept, ["ort-base"], TYPES)
    with pytest.raises(Interrupted):
        run(planned, account, kept, sleep=pressed)
    second = planned.experiment.cells[1]
    assert kept.left(planned.experiment.cells) == (second,)
    assert account.models == {}
    account.ending = None
    measured = run(planned, account, kept)
    assert [each.max_invocations_per_minute for each in measured] == [12_000, 24_000]
    tested = [job["request"]["InputConfig"]["EndpointConfigurations"] for job in account.created]
    assert tested == [[{"InstanceType": name} for name in TYPES], [{"InstanceType": second.instance_type}]]


def test_the_folder_reads_as_a_runs(kept: ExperimentFolder, account: DiskAccount) -> None:
    measured = run(prepared(kept, ["ort-base"]), account, kept)
    kept_measurements = json.loads((kept.path / "measurements.json").read_text("utf-8"))
    assert [one["variant"] for one in kept_measurements] == [one.variant for one in measured] == ["ort-base"]
    assert kept.workload().name == "text_classification"


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_killed_and_started_again_it_repeats_no_finished_cell(tmp_path: Path, ended: int) -> None:
    """Three jobs of two cells. SIGKILL, which no program can handle, comes when `ended` jobs have."""
    kept, account = ExperimentFolder(tmp_path / "experiment"), DiskAccount(tmp_path / "state")
    program = "tests.inference_recommender.experiment.experiment_account"
    process = subprocess.Popen(
        [sys.executable, "-m", program, str(kept.path), str(account.state), str(ended)], cwd=ROOT
    )
    try:
        _wait_until(lambda: len(account.created) > ended, process)  # the next job has begun, and never ends
    finally:
        process.kill()
        process.wait()
    before = {file: file.stat().st_mtime_ns for file in kept.path.glob("cells/*/*.json")}
    assert len(before) == 2 * ended

    variants = ["ts-base", "ort-base", "ort-ig"]
    run(prepared(kept, variants, TYPES), account, kept, sleep=lambda seconds: None)
    tested = [
        (job["request"]["InputConfig"]["ModelName"], configuration["InstanceType"])
        for job in account.created
        for configuration in job["request"]["InputConfig"]["EndpointConfigurations"]
    ]
    models = [f"text-classification-experiment-1-{variant}" for variant in variants]
    assert tested == list(itertools.product(models, TYPES)), "each cell once, also of the job that ran at the kill"
    assert len(kept.measured(kept.experiment().cells)) == 6
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert account.models == {}


def _wait_until(condition: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert process.poll() is None, "the experiment ended by itself"
        assert time.monotonic() < deadline, "the experiment hangs"
        time.sleep(0.01)
