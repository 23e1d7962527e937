"""The reader of a pipeline's template: order, inputs, variables, build specifications and errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.rehearsal.release.pipeline_template import (
    Deployed,
    Pipeline,
    action_variables,
    read_build_spec,
    read_pipeline,
)
from tests.scripts.rehearsal.release.templates import build, commands, pipeline, project, source
from workloads import ROOT, UsageError

SNAPSHOT = ROOT / "tests" / "stacks" / "snapshots" / "SpellcheckReleaseStack.template.json"


def test_a_secret_variable_is_rejected() -> None:
    def given(kind: str) -> Pipeline:
        variables = json.dumps([{"name": "COMMIT", "type": kind, "value": "#{Files_NS.CommitId}"}])
        stages = {"Source": [source("Files")], "Build": [build("Step", 1, ["Files"], EnvironmentVariables=variables)]}
        return pipeline(stages, Step=project(commands("true")))

    assert action_variables(given("PLAINTEXT").action("Build", "Step")) == {"COMMIT": "#{Files_NS.CommitId}"}
    with pytest.raises(UsageError) as caught:
        action_variables(given("SECRETS_MANAGER").action("Build", "Step"))
    assert str(caught.value) == "Step: COMMIT: the rehearsal does not support SECRETS_MANAGER."


def test_a_stage_with_more_actions_than_codepipeline_takes_is_rejected() -> None:
    sources = [source(f"Files{number}") for number in range(51)]
    assert len(pipeline({"Source": sources[:50]}).actions) == 50
    with pytest.raises(UsageError) as caught:
        pipeline({"Source": sources})
    assert str(caught.value) == "Stage Source has 51 actions. Allowed: 50."


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
    with pytest.raises(UsageError) as caught:
        read_build_spec("Step", json.dumps({"version": "0.2", **spec}))
    assert str(caught.value) == reason


def test_the_projects_own_pipeline_is_supported() -> None:
    text: dict[str, Any] = json.loads(Path(SNAPSHOT).read_text("utf-8"))
    names = {name: name for name in [*text["Resources"], "AWS::Partition", "AWS::Region", "AWS::AccountId"]}
    names["AWS::URLSuffix"] = "amazonaws.com"
    read = read_pipeline(text, Deployed(references=names, attribute=lambda name, attribute: f"arn:{name}:{attribute}"))
    assert read.stages[:3] == ("Source", "Build", "UpdatePipeline")
    builds = [action for action in read.actions if action.provider == "CodeBuild"]
    assert {action.configuration["ProjectName"] for action in builds} == set(read.projects)
    assert any(project.cache for project in read.projects.values())
