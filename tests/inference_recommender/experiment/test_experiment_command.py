"""`experiment`, `report` and `run --with load-test` as a user meets them: plans, refusals, exit codes. No AWS."""

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import validate_parameters
from rich.console import Console

from inference_recommender.__main__ import main
from inference_recommender.cli import experiment as command
from inference_recommender.experiment.folder import ExperimentFolder
from tests.builders import an_artifact
from tests.inference_recommender.experiment.experiment_account import IMAGE, ROLE, DiskAccount, prepared, run
from workloads import UsageError


def with_settings(**keys: str) -> tuple[str, ...]:
    """Returns arguments that set keys of [recommender]."""
    return tuple(word for key, value in keys.items() for word in ("--set", f"recommender.{key}={value}"))


ROLE_AND_BUCKET = with_settings(role_arn=ROLE, bucket="bucket")
ACCESS = (*ROLE_AND_BUCKET, *with_settings(**{"images.all": IMAGE}))


@dataclass(frozen=True)
class Shown:
    returncode: int
    stdout: str
    stderr: str


Cli = Callable[..., Shown]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line in this process, with no AWS configuration."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def run_it(*arguments: str) -> Shown:
        code = main(list(arguments))
        return Shown(code, *capsys.readouterr())

    return run_it


def _options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    return parser.parse_args(["experiment", *arguments])


def _run(*arguments: str) -> int:
    options = _options(*arguments)
    return int(options.command(options, Console(stderr=True, width=200)))


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every variant look built."""

    def artifact(root: Path, workload: str, variant: str, published: str | None) -> Any:
        return an_artifact(workload=workload, variant=variant)

    monkeypatch.setattr(command, "load_artifact", artifact)


@pytest.fixture
def kept(tmp_path: Path) -> ExperimentFolder:
    """An experiment of two cells that has been measured."""
    folder = ExperimentFolder(tmp_path / "text-classification-experiment-1")
    run(prepared(folder, ["ts-base", "ort-base"]), DiskAccount(tmp_path / "state"), folder)
    return folder


def _shape(operation: str) -> Any:
    return botocore.session.get_session().get_service_model("sagemaker").operation_model(operation).input_shape


@pytest.mark.usefixtures("built")
def test_the_published_experiment_is_eight_variants_on_three_types_under_the_published_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("text_classification", "--published", "--runs", str(tmp_path), "--dry-run", *ACCESS) == 0
    shown = json.loads(capsys.readouterr().out)
    experiment = shown["experiment"]
    assert (experiment["published"], experiment["traffic"], len(experiment["cells"])) == ("bert-large", "published", 24)
    assert experiment["baseline"] == {"variant": "pt-base", "instance_type": "ml.g4dn.xlarge"}
    assert len({cell["variant"] for cell in experiment["cells"]}) == 8
    for job in shown["jobs"]:
        assert job["InputConfig"]["TrafficPattern"]["Phases"] == [
            {"InitialNumberOfUsers": 2, "SpawnRate": 2, "DurationInSeconds": 1500}
        ]
        types = [one["InstanceType"] for one in job["InputConfig"]["EndpointConfigurations"]]
        assert types == ["ml.g4dn.xlarge", "ml.g4dn.2xlarge", "ml.g4dn.12xlarge"]


@pytest.mark.usefixtures("built")
def test_question_answering_is_published_on_inferentia_against_a_gpu_in_mixed_precision(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both types of Inf1, one and six requests an inference, copies and pipelines: 10 cells, and the baseline's."""
    assert _run("question_answering", "--published", "--runs", str(tmp_path), "--dry-run", *ACCESS) == 0
    experiment = json.loads(capsys.readouterr().out)["experiment"]
    assert (experiment["published"], experiment["load"]) == ("bert-base", "load-test")
    assert experiment["baseline"] == {"variant": "gpu-autocast", "instance_type": "ml.g4dn.xlarge"}
    kinds, sizes = ("data-parallel", "chip-pipeline"), ("xlarge", "6xlarge")
    both = {(f"inf1-{kind}{rows}", f"ml.inf1.{size}") for kind in kinds for rows in ("", "-6") for size in sizes}
    whole = {("inf1-pipeline", "ml.inf1.6xlarge"), ("inf1-pipeline-6", "ml.inf1.6xlarge")}
    assert {(cell["variant"], cell["instance_type"]) for cell in experiment["cells"]} == {
        *both,
        *whole,
        ("gpu-autocast", "ml.g4dn.xlarge"),
    }


@pytest.mark.usefixtures("built")
def test_both_of_its_kinds_of_hardware_are_one_run_with_an_image_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = with_settings(**{"images.inf1": f"{IMAGE}-neuron", "images.gpu": f"{IMAGE}:25.04-py3"})
    arguments = ("--published", "--runs", str(tmp_path), "--dry-run", *ROLE_AND_BUCKET, *images)
    assert _run("question_answering", *arguments) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {
        model["Tags"][1]["Value"]: model["PrimaryContainer"]["Image"].removeprefix(IMAGE) for model in shown["models"]
    } == {
        **dict.fromkeys({cell["variant"] for cell in shown["experiment"]["cells"]}, "-neuron"),
        "gpu-autocast": ":25.04-py3",
    }


def test_a_missing_build_of_a_published_variant_is_named_with_its_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "ROOT", tmp_path)
    _run("text_classification", "--published", "cpu-twin", "--runs", str(tmp_path), "--dry-run", *ACCESS)
    said = " ".join(capsys.readouterr().err.split())
    assert "`python -m model_build build text_classification --target ort-base --published cpu-twin`" in said


@pytest.mark.usefixtures("built")
def test_a_dry_run_prints_the_plan_and_every_request_and_sends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--variants", "trt-*", "ort-base", "--traffic", "quick", "--runs", str(tmp_path), "--dry-run", *ACCESS)
    assert _run("text_classification", *arguments) == 0
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["experiment"]["cells"]) == 17
    assert len(shown["jobs"]) == len(shown["models"]) == 5
    for model, job in zip(shown["models"], shown["jobs"], strict=True):
        validate_parameters(model, _shape("CreateModel"))
        validate_parameters(job, _shape("CreateInferenceRecommendationsJob"))
        assert job["InputConfig"]["ModelName"] == model["ModelName"]
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_without_aws_or_builds_names_its_placeholders(cli: Cli) -> None:
    shown = cli("experiment", "question_answering", "--variants", "inf1-data-parallel", "inf1-pipeline", "--dry-run")
    assert shown.returncode == 0
    document = json.loads(shown.stdout)
    assert len(document["jobs"]) == 2
    assert document["jobs"][0]["RoleArn"] == "arn:aws:iam::000000000000:role/RecommenderRole"
    assert "ACCOUNT, REGION and the names of role and image are placeholders." in shown.stderr


def test_every_missing_build_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "ROOT", tmp_path)
    with pytest.raises(UsageError) as caught:
        _run("text_classification", "--variants", "ort-base", "ort-db", "--traffic", "quick", *ACCESS)
    assert str(caught.value) == "\n".join(
        f"{tmp_path}/build/text_classification/{name}/artifact.json does not exist: build it with "
        f"`python -m model_build build text_classification --target {name}`."
        for name in ("ort-base", "ort-db")
    )
    assert caught.value.exit_code == 2
    assert not (tmp_path / "runs").exists(), "nothing was begun"


ON_GPU = ("experiment", "text_classification", "--variants", "trt-db-ig", "--instance-types", "ml.g5.xlarge")


def test_gpu_cells_are_measured_by_load_tests_and_not_by_jobs(cli: Cli) -> None:
    """A job's hosts of ml.g5 start with driver 470, on which the image does not start."""
    planned = json.loads(cli(*ON_GPU, *ACCESS, "--dry-run").stdout)
    assert planned["experiment"]["load"] == "load-test"
    refused = cli(*ON_GPU, *ACCESS, *with_settings(load="sagemaker"), "--dry-run")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("ml.g5.xlarge: a job's hosts of these types start with NVIDIA driver 470,")


def test_an_experiment_of_nothing_is_refused(cli: Cli) -> None:
    shown = cli("experiment")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr == ("WORKLOAD: is missing. Name a workload, or an experiment to continue with --resume RUN.\n")


@pytest.mark.usefixtures("built")
def test_a_finished_experiment_is_shown_again_and_nothing_is_measured(
    kept: ExperimentFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("--resume", str(kept.path), "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["recommended"] == {"variant": "ort-base", "instance_type": "ml.c5.xlarge"}
    assert json.loads((kept.path / "result.json").read_text("utf-8")) == shown


@pytest.mark.usefixtures("built")
def test_a_resumed_experiment_takes_no_settings(kept: ExperimentFolder) -> None:
    with pytest.raises(UsageError) as caught:
        _run("--resume", str(kept.path), "--variants", "ort-db", "--traffic", "quick")
    assert str(caught.value) == (
        f"--resume: {kept.path} has the settings of the experiment. Leave out --variants, --traffic, or start a new "
        "experiment."
    )


def test_a_variant_built_anew_cannot_join_the_cells_of_the_old_one(
    kept: ExperimentFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        command,
        "load_artifact",
        lambda root, name, variant, published: an_artifact(variant=variant, archive_sha256="b" * 64),
    )
    with pytest.raises(UsageError) as caught:
        _run("--resume", str(kept.path))
    assert str(caught.value) == (
        f"--resume: {kept.path} measured an archive of 'ts-base' with sha256 {'a' * 64}, but build/ has {'b' * 64}. "
        "Start a new one: measurements of different archives cannot be compared."
    )


def test_report_draws_an_experiment_again_without_aws(cli: Cli, kept: ExperimentFolder) -> None:
    shown = cli("report", str(kept.path))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == f"{kept.report}\n"
    assert kept.report.read_text("utf-8").count("<svg") == 3


def test_size_reads_an_experiment_as_it_reads_a_run(cli: Cli, kept: ExperimentFolder) -> None:
    shown = cli(
        "size",
        "--from",
        str(kept.path),
        "--peak-invocations-per-minute",
        "24000",
        "--set",
        "sizing.headroom=0",
        "--json",
    )
    assert shown.returncode == 0, shown.stderr
    candidates = json.loads(shown.stdout)["candidates"]
    assert {(one["variant"], one["instance_count"]) for one in candidates} == {("ts-base", 3), ("ort-base", 2)}


def test_compare_reads_an_experiment_cell_by_cell(cli: Cli, kept: ExperimentFolder) -> None:
    shown = cli("compare", str(kept.path), str(kept.path), "--json")
    assert shown.returncode == 4, "this account's tests have no confidence interval"
    unfit = json.loads(shown.stdout)["cautions"]
    assert [reason for reason in unfit if "ts-base ml.c5.xlarge" in reason]
    assert [reason for reason in unfit if "ort-base ml.c5.xlarge" in reason]
