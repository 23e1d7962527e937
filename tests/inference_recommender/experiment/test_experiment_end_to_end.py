"""The published experiment on this machine: eight variants built, measured by real jobs on real Tritons, killed midway.

Real commands run in a copy of the repository; only the AWS control plane is this machine's own. A refused verdict is
tried again, and then the test is skipped with the reason.
"""

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference_recommender.experiment.result import ExperimentFolder
from inference_recommender.report.document import Report
from tests.local_aws.conftest import allow, make_role
from tests.repository_copy import RepositoryCopy, repository_copy
from workloads import NoVerdict

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TRAFFIC = """
[traffic.short]
type = "phases"
phases = [{ initial_users = 3, duration_s = 14 }]
stop = { flat_invocations = "Continue" }

[hosting]
"""
TRIES = 3
EXAMPLES = 40
VARIANTS = ("ts-base", "ts-db", "ts-ig", "ts-ig-db", "ort-base", "ort-db", "ort-ig", "ort-ig-db")
EXPERIMENT = ("python", "-m", "inference_recommender", "experiment")
MAY = ("s3:*", "sagemaker:*", "ecr:*", "logs:*", "cloudwatch:*", "iam:PassRole")
FACTS = ("role_arn=arn:aws:iam::123456789012:role/R", "images.all=123456789012.dkr.ecr.us-east-1.amazonaws.com/t:1")
ACCESS = tuple(word for fact in FACTS for word in ("--set", f"recommender.{fact}"))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RepositoryCopy]:
    with repository_copy(tmp_path_factory.mktemp("experiment") / "repository") as copy:
        toml = copy.root / "workloads" / "text_classification" / "workload.toml"
        # A test of seconds on a machine with other work has enough samples for a P50, and may have too few for a P95.
        text = toml.read_text("utf-8").replace('percentile = "P95"', 'percentile = "P50"', 1)
        toml.write_text(text.replace("[hosting]", TRAFFIC.lstrip(), 1), "utf-8")
        # Each of the eight builds answers all examples with the original and with the compiled model.
        evaluation = toml.with_name("evaluation.jsonl")
        examples = evaluation.read_text("utf-8").splitlines(keepends=True)
        evaluation.write_text("".join(examples[:EXAMPLES]), "utf-8")
        make_role(copy.client("iam"), "R", allow(*MAY))
        for target in ("cpu", "cpu-torchscript"):
            copy.run("python", "-m", "model_build", "build", "text_classification", "--target", target, "--variants")
        yield copy


def result(copy: RepositoryCopy, *command: str) -> Report:
    """Runs an experiment to its verdict. One that is refused is resumed, which repeats the cells without one."""
    for _ in range(TRIES):
        process = copy.start(*command, "--json")
        stdout, stderr = process.communicate(timeout=900)
        if process.returncode != NoVerdict.exit_code:
            assert process.returncode == 0, f"{' '.join(command)} ended with {process.returncode}\n{stderr}"
            return Report.model_validate_json(stdout)
        (folder,) = re.findall(r"^Experiment: (.+)$", stderr, re.MULTILINE)
        command = (*EXPERIMENT, "--resume", folder)
    pytest.skip(f"this machine is too busy to measure: {stderr.splitlines()[-1]}")


def test_eight_cells_killed_midway_and_resumed_end_in_one_table_and_page(copy: RepositoryCopy) -> None:
    options = ("--variants", "ts-*", "ort-*", "--traffic", "short", "--baseline", "ml.c5.xlarge/ts-base", *ACCESS)
    first = copy.start(*EXPERIMENT, "text_classification", *options)
    (folder,) = _wait_for(copy.root, first, cells=3)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    before = {cell: one for cell, one in folder.measured().items() if one.failure_reason is None}
    report = result(copy, *EXPERIMENT, "--resume", str(folder.path))

    rows = report.tables[0].rows
    assert [row["variant"] for row in rows] == list(VARIANTS)
    for row in rows:
        assert row["invocations_per_minute"]
        assert row["p95_ms"]
        assert (row["vcpus"], row["memory_gib"], row["gpus"]) == (4, 8, 0)
        assert row["instance_count"]
        assert row["invocations_ratio"]
    assert rows[0]["invocations_ratio"] == 1
    assert any("P" in str(row["mark"]) for row in rows)
    assert report.environment["measured on"].startswith("local: ")

    jobs = copy.client("sagemaker").list_inference_recommendations_jobs(MaxResults=100)
    names = {job["JobName"] for job in jobs["InferenceRecommendationsJobs"]}
    assert {f"{folder.path.name}-{variant}" for variant in VARIANTS} <= names
    repeated = {f"{folder.path.name}-{cell.variant}-2" for cell in before} & names
    assert not repeated, "a finished cell was measured again"
    assert folder.measured().items() >= before.items()
    assert copy.client("sagemaker").list_models()["Models"] == []
    assert folder.report.read_text("utf-8").count("<svg") == 3

    table = copy.run(*EXPERIMENT, "--resume", str(folder.path))
    assert all(f" {variant} " in table for variant in VARIANTS)
    assert "Recommended: " in table
    after = copy.client("sagemaker").list_inference_recommendations_jobs(MaxResults=100)
    assert len(after["InferenceRecommendationsJobs"]) == len(jobs["InferenceRecommendationsJobs"]), "none was measured"


def _wait_for(root: Path, process: "subprocess.Popen[str]", cells: int) -> list[ExperimentFolder]:
    deadline = time.monotonic() + 400
    while sum(len(each.measured()) for each in _folders(root)) < cells:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the experiment hangs"
        time.sleep(0.5)
    return _folders(root)


def _folders(root: Path) -> list[ExperimentFolder]:
    return [ExperimentFolder(path) for path in root.glob("runs/*")]
