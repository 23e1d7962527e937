"""`experiment`, and `report`, `size` and `compare` of its folder: plans, refusals, exit codes. No AWS."""

import json
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import validate_parameters

from inference_recommender.cli import experiment as command
from inference_recommender.experiment.result import ExperimentFolder
from tests.builders import an_artifact
from tests.inference_recommender.conftest import Cli
from tests.inference_recommender.experiment.experiment_account import IMAGE, NAME, ROLE, JobAccount, prepared, run
from workloads import load_workload


def with_settings(**keys: str) -> tuple[str, ...]:
    """Returns arguments that set keys of [recommender]."""
    return tuple(word for key, value in keys.items() for word in ("--set", f"recommender.{key}={value}"))


ROLE_AND_BUCKET = with_settings(role_arn=ROLE, bucket="bucket")
ACCESS = (*ROLE_AND_BUCKET, *with_settings(**{"images.all": IMAGE}))


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every variant look built."""

    def artifact(root: Path, workload: str, variant: str, published: str | None) -> Any:
        source = load_workload(workload)
        runtime = source.target(source.variant(variant).target).runtime
        return an_artifact(workload=workload, variant=variant, runtime=runtime)

    monkeypatch.setattr(command, "load_artifact", artifact)


@pytest.fixture
def kept(tmp_path: Path) -> ExperimentFolder:
    """An experiment of two cells that has been measured."""
    folder = ExperimentFolder(tmp_path / NAME)
    run(prepared(folder, JobAccount(), ["ts-base", "ort-base"]))
    return folder


def _planned(cli: Cli, *arguments: str) -> dict[str, Any]:
    return dict(cli.json("experiment", *arguments, "--dry-run"))


@pytest.mark.usefixtures("built")
def test_the_published_experiment_is_eight_variants_on_three_types_under_the_published_load(cli: Cli) -> None:
    planned = _planned(cli, "text_classification", "--published", *ACCESS)
    experiment = planned["experiment"]
    assert (experiment["published"], experiment["traffic"], len(experiment["cells"])) == ("bert-large", "published", 24)
    assert experiment["baseline"] == {"variant": "pt-base", "instance_type": "ml.g4dn.xlarge"}
    for job in planned["jobs"]:
        assert job["InputConfig"]["TrafficPattern"]["Phases"] == [
            {"InitialNumberOfUsers": 2, "SpawnRate": 2, "DurationInSeconds": 1500}
        ]
        types = [one["InstanceType"] for one in job["InputConfig"]["EndpointConfigurations"]]
        assert types == ["ml.g4dn.xlarge", "ml.g4dn.2xlarge", "ml.g4dn.12xlarge"]


@pytest.mark.usefixtures("built")
def test_question_answering_is_published_on_inferentia_against_a_gpu_with_an_image_each(cli: Cli) -> None:
    images = with_settings(**{"images.inf1": f"{IMAGE}-neuron", "images.gpu": f"{IMAGE}:25.04-py3"})
    planned = _planned(cli, "question_answering", "--published", *ROLE_AND_BUCKET, *images)
    experiment = planned["experiment"]
    assert (experiment["published"], experiment["load"]) == ("bert-base", "load-test")
    assert experiment["baseline"] == {"variant": "gpu-autocast", "instance_type": "ml.g4dn.xlarge"}
    assert len(experiment["cells"]) == 12
    served = {model["PrimaryContainer"]["Image"].removeprefix(IMAGE) for model in planned["models"]}
    assert served == {"-neuron", ":25.04-py3"}
    urls = [job["InputConfig"]["ContainerConfig"]["PayloadConfig"]["SamplePayloadUrl"] for job in planned["jobs"]]
    names = [url.rpartition("/")[2] for url in urls]
    assert {name: names.count(name) for name in names} == {
        "payloads.tar.gz": 4,
        "payloads-6-rows.tar.gz": 3,
        "payloads-64-rows.tar.gz": 1,
    }


@pytest.mark.usefixtures("built")
def test_a_dry_run_prints_the_plan_and_every_request_and_sends_nothing(cli: Cli, tmp_path: Path) -> None:
    arguments = ("--variants", "trt-*", "ort-base", "--traffic", "quick", "--runs", str(tmp_path), *ACCESS)
    planned = _planned(cli, "text_classification", *arguments)
    assert len(planned["experiment"]["cells"]) == 17
    assert len(planned["jobs"]) == len(planned["models"]) == 5
    service = botocore.session.get_session().get_service_model("sagemaker")
    create_model, create_job = (
        service.operation_model(name).input_shape for name in ("CreateModel", "CreateInferenceRecommendationsJob")
    )
    assert create_model
    assert create_job
    for model, job in zip(planned["models"], planned["jobs"], strict=True):
        validate_parameters(model, create_model)
        validate_parameters(job, create_job)
        assert job["InputConfig"]["ModelName"] == model["ModelName"]
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_without_aws_or_builds_names_its_placeholders(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "ROOT", tmp_path)
    shown = cli("experiment", "question_answering", "--variants", "inf1-data-parallel", "gpu-autocast", "--dry-run")
    document = json.loads(shown.stdout)
    assert (shown.returncode, len(document["jobs"]), document["models"]) == (0, 2, [])
    assert document["jobs"][0]["RoleArn"] == "arn:aws:iam::000000000000:role/RecommenderRole"
    assert "ACCOUNT, REGION and the names of role and image are placeholders." in shown.stderr
    assert "`python -m model_build build question_answering --target gpu-autocast`" in shown.stderr


def test_every_missing_build_is_named_with_its_command(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "ROOT", tmp_path)
    shown = cli("experiment", "text_classification", "--variants", "ort-base", "ort-db", "--traffic", "quick", *ACCESS)
    assert (shown.returncode, shown.stderr.splitlines()) == (
        2,
        [
            f"{tmp_path}/build/text_classification/{name}/artifact.json does not exist: build it with "
            f"`python -m model_build build text_classification --target {name}`."
            for name in ("ort-base", "ort-db")
        ],
    )
    assert not (tmp_path / "runs").exists(), "nothing was begun"


def test_gpu_cells_whose_image_does_not_start_on_a_jobs_hosts_are_measured_by_load_tests(cli: Cli) -> None:
    on_gpu = ("text_classification", "--variants", "trt-db-ig", "--instance-types", "ml.g5.xlarge", *ACCESS)
    assert _planned(cli, *on_gpu)["experiment"]["load"] == "sagemaker"
    newer = ("--set", f"recommender.images.gpu={IMAGE}:25.09-py3")
    assert _planned(cli, *on_gpu, *newer)["experiment"]["load"] == "load-test"
    refused = cli("experiment", *on_gpu, *newer, *with_settings(load="sagemaker"), "--dry-run")
    assert (refused.returncode, refused.stderr) == (
        2,
        "recommender.load: got 'sagemaker', but the image does not start with the GPU driver of a job's hosts of "
        "ml.g5.xlarge. Set it to load-test or leave it out, set hosting.triton_version to 24.09, or set "
        "recommender.ignore_driver=true.\n",
    )


@pytest.mark.usefixtures("built")
def test_a_finished_experiment_is_shown_again_and_nothing_is_measured(cli: Cli, kept: ExperimentFolder) -> None:
    document = cli.json("experiment", "--resume", str(kept.path), "--json")
    assert document["decision"].startswith("Recommended: ")
    assert "ml.c5.xlarge ort-base" in document["decision"]
    assert json.loads((kept.path / "result.json").read_text("utf-8")) == document


def test_refusals(cli: Cli, kept: ExperimentFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def rebuilt(root: Path, workload: str, variant: str, published: str | None) -> Any:
        return an_artifact(variant=variant, archive_sha256="b" * 64)

    monkeypatch.setattr(command, "load_artifact", rebuilt)
    resume = ("--resume", str(kept.path))
    for arguments, message in (
        (
            (*resume, "--variants", "ort-db", "--traffic", "quick"),
            f"--resume: {kept.path} has the settings of the experiment. Only --json and --dry-run may go with it.",
        ),
        (
            resume,
            f"--resume: {kept.path} measured an archive of 'ts-base' with sha256 {'a' * 64}, but build/ has "
            f"{'b' * 64}. Start a new one: measurements of different archives cannot be compared.",
        ),
    ):
        assert cli("experiment", *arguments) == (2, "", f"{message}\n")


def test_report_size_and_compare_read_an_experiment_as_a_run(cli: Cli, kept: ExperimentFolder) -> None:
    assert cli("report", str(kept.path)) == (0, f"{kept.report}\n", "")
    assert kept.report.read_text("utf-8").count("<svg") == 3
    peak = ("--peak-invocations-per-minute", "24000", "--set", "sizing.headroom=0")
    sized = cli.json("size", "--from", str(kept.path), *peak, "--json")
    assert {(one["variant"], one["instance_count"]) for one in sized["candidates"]} == {("ts-base", 3), ("ort-base", 2)}
    # This account's tests have no confidence interval.
    unfit = cli.json("compare", str(kept.path), str(kept.path), "--json", code=4)["cautions"]
    for name in ("ml.c5.xlarge ts-base", "ml.c5.xlarge ort-base"):
        assert [reason for reason in unfit if name in reason]
