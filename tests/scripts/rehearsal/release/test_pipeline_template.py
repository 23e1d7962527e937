"""The reader of a pipeline's template, and the check of its roles' permissions."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from scripts.rehearsal.release.permissions import CallLog, Denied, check_connection
from scripts.rehearsal.release.pipeline_template import (
    Pipeline,
    action_variables,
    read_build_spec,
    read_pipeline,
)
from tests.builders import message_of
from tests.scripts.rehearsal.release.templates import ACCOUNT, build, commands, pipeline, project, source
from workloads import ROOT, UsageError

SNAPSHOT = ROOT / "tests" / "stacks" / "snapshots" / "SpellcheckReleaseStack.template.json"


def test_a_secret_variable_is_rejected() -> None:
    def given(kind: str) -> Pipeline:
        variables = json.dumps([{"name": "COMMIT", "type": kind, "value": "#{Files_NS.CommitId}"}])
        stages = {"Source": [source("Files")], "Build": [build("Step", 1, ["Files"], EnvironmentVariables=variables)]}
        return pipeline(stages, Step=project(commands("true")))

    assert action_variables(given("PLAINTEXT").action("Build", "Step")) == {"COMMIT": "#{Files_NS.CommitId}"}
    message = message_of(UsageError, action_variables, given("SECRETS_MANAGER").action("Build", "Step"))
    assert message == "Step: COMMIT: the rehearsal does not support SECRETS_MANAGER."


def test_a_stage_with_more_actions_than_codepipeline_takes_is_rejected() -> None:
    sources = [source(f"Files{number}") for number in range(51)]
    assert len(pipeline({"Source": sources[:50]}).actions) == 50
    assert message_of(UsageError, pipeline, {"Source": sources}) == "Stage Source has 51 actions. Allowed: 50."


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"batch": {}}, "Step: buildspec: buildspec: the rehearsal does not support batch."),
        ({"phases": {"post_build": {}}}, "Step: buildspec: phases: the rehearsal does not support post_build."),
        ({"env": {"secrets-manager": {}}}, "Step: buildspec: env: the rehearsal does not support secrets-manager."),
        (
            {"phases": {"build": {"on-failure": "CONTINUE"}}},
            "Step: buildspec: phases.build: the rehearsal does not support on-failure.",
        ),
    ],
)
def test_an_unsupported_key_of_a_build_specification_is_rejected(spec: dict[str, Any], reason: str) -> None:
    assert message_of(UsageError, read_build_spec, "Step", json.dumps({"version": "0.2", **spec})) == reason


def test_the_projects_own_pipeline_is_supported() -> None:
    text: dict[str, Any] = json.loads(Path(SNAPSHOT).read_text("utf-8"))
    names = {name: name for name in [*text["Resources"], "AWS::Partition", "AWS::Region", "AWS::AccountId"]}
    names["AWS::URLSuffix"] = "amazonaws.com"
    attributes = {f"{name}.{each}": each for name in names for each in ("Arn", "RepositoryUri")}
    read = read_pipeline(text, names | attributes)
    assert read.stages[:3] == ("Source", "Build", "UpdatePipeline")
    builds = [action for action in read.actions if action.provider == "CodeBuild"]
    assert {action.configuration["ProjectName"] for action in builds} == set(read.projects)
    assert any(project.cache for project in read.projects.values())


CONNECTION = f"arn:aws:codeconnections:us-east-1:{ACCOUNT}:connection/00000000-0000-0000-0000-000000000000"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/Ask"


def line(action: str, *, allowed: bool) -> str:
    resource = "arn:aws:sagemaker:us-east-1:123456789012:endpoint/beta"
    return json.dumps({"role": ROLE, "action": action, "resource": resource, "allowed": allowed}) + "\n"


def test_a_denied_call_ends_the_rehearsal_even_if_the_program_ignored_it(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    calls = CallLog(file)
    calls.check("before anything")
    file.write_text(line("sagemaker:InvokeEndpoint", allowed=True))
    calls.check("Beta/SmokeTest")
    assert calls.roles == {"Ask": {"sagemaker:InvokeEndpoint"}}
    with file.open("a") as more:
        more.write(line("sagemaker:AddTags", allowed=False) + '{"half a li')
    assert message_of(Denied, calls.check, "Beta/Measure") == (
        f"Beta/Measure: {ROLE} may not sagemaker:AddTags on arn:aws:sagemaker:us-east-1:123456789012:endpoint/beta."
    )


class Iam:
    """IAM with one inline policy for each role."""

    def __init__(self, statements: Mapping[str, list[dict[str, Any]]]) -> None:
        self._statements = statements

    def list_role_policies(self, **_: str) -> dict[str, Any]:
        return {"PolicyNames": ["Default"]}

    def get_role_policy(self, **named: str) -> dict[str, Any]:
        return {"PolicyDocument": {"Version": "2012-10-17", "Statement": self._statements[named["RoleName"]]}}


def released() -> Pipeline:
    stages = {
        "Source": [
            source("Files", ConnectionArn=CONNECTION),
            source("Clone", ConnectionArn=CONNECTION, OutputArtifactFormat="CODEBUILD_CLONE_REF"),
        ],
        "Beta": [build("Propose", 1, ["Clone"])],
    }
    return pipeline(stages, Propose=project(commands("true")))


def allowing(*actions: str) -> list[dict[str, Any]]:
    return [{"Effect": "Allow", "Action": list(actions), "Resource": CONNECTION}]


@pytest.mark.parametrize(("wrong", "where"), [("SourceRole", "Source/Clone"), ("BuildRole", "Beta/Propose")])
def test_another_service_is_denied(wrong: str, where: str) -> None:
    """CDK grants only codestar-connections:UseConnection."""
    right = allowing("codeconnections:UseConnection")
    roles = {"SourceRole": right, "BuildRole": right, wrong: allowing("codestar-connections:UseConnection")}
    check_connection(released(), Iam({**roles, wrong: right}))
    message = message_of(Denied, check_connection, released(), Iam(roles))
    role = f"arn:aws:iam::{ACCOUNT}:role/{wrong}"
    assert message == f"{where}: {role} may not codeconnections:UseConnection on {CONNECTION}."
