"""A daily cleanup of what killed tests left: its schedule, its permissions and its program."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from app import add_all
from aws_api.expiry import TAG
from aws_api.sagemaker import EXPIRING_KINDS
from stacks.cleanup import KINDS, NAME
from stacks.context import read_cleanup
from tests.stacks.release.conftest import VIRGINIA
from tests.stacks.templates import lint_matches, make_app, nag_findings
from workloads import UsageError


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
    assert statement["Action"] == [f"sagemaker:Delete{noun}" for noun, _ in EXPIRING_KINDS.values()]
    assert list(KINDS) == list(EXPIRING_KINDS)
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
    with pytest.raises(UsageError) as caught:
        read_cleanup({"cleanup": "hourly"}.get)
    assert str(caught.value) == "-c cleanup: got 'hourly'. Allowed: off, daily."
