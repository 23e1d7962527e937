"""The effects and the refusals of `cdk -c KEY=VALUE`, and the daily cleanup that one of them adds."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomllib
from aws_cdk import App, Stack

from aws_api.expiry import TAG
from aws_api.sagemaker import EXPIRING_KINDS
from stacks.app import NothingBuilt, add_all, add_stacks
from stacks.cleanup import KINDS, NAME
from stacks.context import Options, read_cleanup, read_options
from tests.builders import message_of
from tests.stacks.miniature import Repository, as_committed, candidate, recommend_for_production
from tests.stacks.release.conftest import VIRGINIA
from tests.stacks.templates import lint_matches, make_app, nag_findings
from workloads import ROOT, UsageError, artifact_file

CASES = tomllib.loads(Path(__file__).with_name("context_refusals.toml").read_text("utf-8"))["case"]
TOPIC = "arn:aws:sns:eu-west-1:123456789012:pages"


def read(**context: Any) -> Options:
    return read_options({key.replace("_", "-"): value for key, value in context.items()}.get)


def test_the_default_is_the_beta_stage() -> None:
    assert read() == Options(stage="beta", hosting_target=None, recommendation="use")


def test_options_are_read_from_the_context() -> None:
    assert read(stage="production").in_production
    assert read(hosting_target="cpu", recommendation="ignore") == Options(hosting_target="cpu", recommendation="ignore")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["message"][:60])
def test_an_invalid_option_is_rejected(case: dict[str, Any]) -> None:
    assert message_of(UsageError, read, **case["context"]) == case["message"]


@pytest.mark.parametrize("given", ["hosting-target=cpu", "recommendation=ignore"])
def test_production_rejects_options_for_rehearsals(given: str) -> None:
    key, value = given.split("=")
    assert message_of(UsageError, read, stage="production", **{key.replace("-", "_"): value}) == (
        f"-c {given}: is for rehearsing and measuring, and -c stage=production is neither. Leave one of the two out."
    )


@pytest.mark.parametrize("workload", ["spellcheck", "query_intent", "duplicates"])
def test_every_stack_that_pages_uses_the_topic_and_is_protected_in_production(tmp_path: Path, workload: str) -> None:
    repository = as_committed(tmp_path, workload)
    recommend_for_production(repository)
    synthesis = repository.synthesise(options=read(stage="production", alarm_topic=TOPIC))
    assert synthesis.only("AWS::CloudWatch::CompositeAlarm")["AlarmActions"] == [TOPIC]
    assert synthesis.of_type("AWS::SNS::Topic") == {}
    stacks = [each for each in synthesis.app.node.children if isinstance(each, Stack)]
    assert all(each.termination_protection for each in stacks)
    assert not repository.synthesise(options=Options(recommendation="ignore")).stack.termination_protection


def test_hosting_target_applies_to_workloads_that_have_the_target(repository: Repository) -> None:
    shutil.copytree(ROOT / "workloads/question_answering", repository.root / "workloads/question_answering")
    repository.host(target="tensorrt")
    repository.artifact_file("tensorrt").unlink()
    with pytest.raises(NothingBuilt) as refusal:
        add_stacks(App(), repository.root, options=Options(hosting_target="inf2"))
    build = "does not exist: build it with `python -m model_build build"
    assert list(map(str, refusal.value.reasons.values())) == [
        f"{artifact_file(repository.root, 'question_answering', 'inf2')} {build} question_answering --target inf2`.",
        f"{artifact_file(repository.root, 'spellcheck', 'tensorrt')} {build} spellcheck --target tensorrt`. "
        "Built is cpu: -c hosting-target=cpu deploys it instead.",
    ]
    left_out = add_stacks(App(), repository.root, options=Options(hosting_target="cpu"))
    assert [str(error).split(" ")[0] for error in left_out.values()] == [
        str(artifact_file(repository.root, "question_answering", "cpu"))
    ]


def test_autoscaling_can_be_turned_off_to_change_the_instance_type(repository: Repository) -> None:
    repository.host(image_uri="123456789012.dkr.ecr.eu-west-1.amazonaws.com/triton-onnxruntime:25.09")
    repository.recommend(candidate())
    synthesis = repository.synthesise(options=read(stage="production", autoscaling="off"))
    assert not synthesis.of_type("AWS::ApplicationAutoScaling::ScalableTarget")
    (variant,) = synthesis.only("AWS::SageMaker::EndpointConfig")["ProductionVariants"]
    assert (variant["InstanceType"], variant["InitialInstanceCount"]) == ("ml.c5.2xlarge", 3)
    assert synthesis.warnings() == [
        "-c autoscaling=off: the fleet keeps its present size, whatever the load. Deploy without it as soon as the "
        "endpoint is on ml.c5.2xlarge. [ack: autoscaling:off]"
    ]


def test_an_unknown_hosting_target_is_rejected(repository: Repository) -> None:
    message = message_of(UsageError, add_stacks, App(), repository.root, options=Options(hosting_target="tpu"))
    assert message == "-c hosting-target: got 'tpu'. Allowed: cpu, cpu-int8, cuda, tensorrt, tensorrt-int8."


@pytest.fixture(scope="module")
def cleaning(tmp_path_factory: pytest.TempPathFactory) -> App:
    """An account whose repository has no workload that is built."""
    root = tmp_path_factory.mktemp("cleanup")
    (root / "workloads").mkdir()
    app = make_app(root / "cdk.out", {"cleanup": "daily"})
    assert add_all(app, root, VIRGINIA, None) == 0
    return app


@pytest.fixture(scope="module")
def template(cleaning: App) -> dict[str, Any]:
    return dict(cleaning.synth().get_stack_by_name(NAME).template)


def only(template: dict[str, Any], kind: str) -> dict[str, Any]:
    (properties,) = (r["Properties"] for r in template["Resources"].values() if r["Type"] == kind)
    return dict(properties)


def test_it_runs_each_day(template: dict[str, Any]) -> None:
    rule, project = only(template, "AWS::Events::Rule"), only(template, "AWS::CodeBuild::Project")
    assert rule["ScheduleExpression"] == "rate(1 day)"
    assert template["Resources"][rule["Targets"][0]["Arn"]["Fn::GetAtt"][0]]["Properties"] == project
    assert "python -m inference_recommender jobs cleanup" in project["Source"]["BuildSpec"]


def test_it_deletes_only_resources_with_an_expiry(template: dict[str, Any]) -> None:
    policies = [r["Properties"] for r in template["Resources"].values() if r["Type"] == "AWS::IAM::Policy"]
    statements = [statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]]
    deleting = [s for s in statements if "Delete" in str(s["Action"])]
    (statement,) = deleting
    assert statement["Action"] == [f"sagemaker:Delete{noun}" for noun in EXPIRING_KINDS.values()]
    assert KINDS == EXPIRING_KINDS
    assert statement["Condition"] == {"Null": {f"aws:ResourceTag/{TAG}": "false"}}


def test_its_files_are_all_that_the_program_needs(cleaning: App) -> None:
    (program,) = (folder for folder in Path(cleaning.synth().directory).glob("asset.*") if folder.is_dir())
    assert {file.name for file in (program / "scripts").iterdir()} == {"install_locked.sh"}
    assert (program / "requirements/project.txt").exists()
    environment = {**os.environ, "PYTHONPATH": str(program), "AWS_EC2_METADATA_DISABLED": "true"}
    command = [sys.executable, "-m", "inference_recommender", "jobs", "cleanup"]
    done = subprocess.run(command, cwd=program, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), "it runs, and has no account here"


def test_the_template_is_sound(cleaning: App, template: dict[str, Any]) -> None:
    assert nag_findings(cleaning) == []
    assert [str(match) for match in lint_matches(template, "us-east-1")] == []


def test_another_cleanup_than_a_daily_one_is_rejected() -> None:
    assert not read_cleanup(lambda _: None)
    message = message_of(UsageError, read_cleanup, {"cleanup": "hourly"}.get)
    assert message == "-c cleanup: got 'hourly'. Allowed: off, daily."
