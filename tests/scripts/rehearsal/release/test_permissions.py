"""The check of the roles' permissions: denied calls, and the connection to the Git host."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from scripts.rehearsal.release.permissions import CallLog, Denied, check_connection
from scripts.rehearsal.release.pipeline_template import Pipeline
from tests.scripts.rehearsal.release.templates import ACCOUNT, build, commands, pipeline, project, source

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
    with pytest.raises(Denied) as caught:
        calls.check("Beta/Measure")
    assert str(caught.value) == (
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
    with pytest.raises(Denied) as caught:
        check_connection(released(), Iam(roles))
    role = f"arn:aws:iam::{ACCOUNT}:role/{wrong}"
    assert str(caught.value) == f"{where}: {role} may not codeconnections:UseConnection on {CONNECTION}."
