"""The reader of a pipeline's template: order, inputs, variables, build specifications, and what it refuses."""

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
from tests.scripts.rehearsal.release.templates import (
    ACCOUNT,
    build,
    commands,
    deployed,
    pipeline,
    project,
    source,
    template,
)
from workloads import ROOT, UsageError

SNAPSHOT = ROOT / "tests" / "stacks" / "snapshots" / "ReleasePipelineStack.template.json"


def test_actions_come_by_stage_run_order_and_name() -> None:
    made = pipeline(
        {
            "Source": [source("Files")],
            "Build": [build("Later", 2, ["Files"]), build("B", 1, ["Files"]), build("A", 1, ["Files"])],
        },
        Later=project(commands("true")),
        A=project(commands("true")),
        B=project(commands("true")),
    )
    assert [action.name for action in made.actions] == ["Files", "A", "B", "Later"]
    assert (made.name, made.bucket, made.stages) == ("Pipeline", "artifacts", ("Source", "Build"))
    assert made.role_arn == f"arn:aws:iam::{ACCOUNT}:role/PipelineRole"
    assert made.projects["A"].role_arn == f"arn:aws:iam::{ACCOUNT}:role/BuildRole"


def test_the_primary_source_comes_first() -> None:
    made = pipeline(
        {
            "Source": [source("Files"), source("Clone")],
            "Build": [build("Step", 1, ["Files", "Clone"], PrimarySource="Clone")],
        },
        Step=project(commands("true")),
    )
    assert made.action("Build", "Step").inputs == ("Clone", "Files")


def test_an_actions_variables_are_read_and_a_secret_is_refused() -> None:
    def given(kind: str) -> Pipeline:
        variables = json.dumps([{"name": "COMMIT", "type": kind, "value": "#{Files_NS.CommitId}"}])
        stages = {"Source": [source("Files")], "Build": [build("Step", 1, ["Files"], EnvironmentVariables=variables)]}
        return pipeline(stages, Step=project(commands("true")))

    assert action_variables(given("PLAINTEXT").action("Build", "Step")) == {"COMMIT": "#{Files_NS.CommitId}"}
    with pytest.raises(UsageError) as caught:
        action_variables(given("SECRETS_MANAGER").action("Build", "Step"))
    assert str(caught.value) == "Step: COMMIT: is of type SECRETS_MANAGER, which is not rehearsed."


def test_an_input_that_nothing_before_makes_is_refused() -> None:
    """CodePipeline refuses such a pipeline, too; actions of one run order run together, so they hand on nothing."""
    for order in (1, 2):
        stages = {
            "Source": [source("Files")],
            "Build": [build("Make", 2, ["Files"], ["Made"]), build("Take", order, ["Made"])],
        }
        with pytest.raises(UsageError) as caught:
            pipeline(stages, Make=project(commands("true")), Take=project(commands("true")))
        assert str(caught.value) == "Build/Take: takes the artifact Made, which nothing before it makes."


def test_a_build_specification_is_read_whole() -> None:
    spec = read_build_spec(
        "Step",
        json.dumps(
            {
                "version": "0.2",
                "env": {"variables": {"A": 1}, "git-credential-helper": "yes", "shell": "bash"},
                "phases": {
                    "install": {"runtime-versions": {"python": "3.11"}, "commands": ["one"]},
                    "build": {"commands": ["two", "three"]},
                },
                "artifacts": {
                    "secondary-artifacts": {"Out": {"base-directory": "out", "files": ["**/*"]}},
                },
                "cache": {"paths": ["build/**/*"]},
            }
        ),
    )
    assert spec.variables == {"A": "1"}
    assert (spec.git_credential_helper, spec.shell, spec.runtimes) == (True, "bash", {"python": "3.11"})
    assert spec.phases == {"install": ("one",), "pre_build": (), "build": ("two", "three"), "post_build": ()}
    assert (spec.outputs, spec.secondary["Out"].base_directory) == (None, "out")
    assert spec.cached == ("build/**/*",)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"batch": {}}, "Step: buildspec: the top has batch, which is not rehearsed."),
        ({"env": {"secrets-manager": {}}}, "Step: buildspec: env has secrets-manager, which is not rehearsed."),
        ({"env": {"exported-variables": []}}, "Step: buildspec: env has exported-variables, which is not rehearsed."),
        (
            {"phases": {"build": {"on-failure": "CONTINUE"}}},
            "Step: buildspec: phases.build has on-failure, which is not rehearsed.",
        ),
        ({"version": "0.1"}, "Step: buildspec.version: is 0.1, and 0.2 is rehearsed."),
    ],
)
def test_what_the_rehearsal_would_not_obey_is_refused(spec: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_build_spec("Step", json.dumps({"version": "0.2", **spec}))
    assert str(caught.value) == reason


def test_what_the_deployed_stack_lacks_is_an_error() -> None:
    stages = {"Source": [source("Files")], "Build": [build("Step", 1, ["Files"])]}
    with pytest.raises(UsageError) as caught:
        read_pipeline(template(stages, {"Step": project(commands("true"))}), deployed())
    assert str(caught.value) == "The template refers to Step, which the deployed stack does not have."


def test_the_projects_own_pipeline_is_understood() -> None:
    """Reads the template as last reviewed: nothing in it is of a kind that the rehearsal would pass over."""
    text: dict[str, Any] = json.loads(Path(SNAPSHOT).read_text("utf-8"))
    names = {name: name for name in [*text["Resources"], "AWS::Partition", "AWS::Region", "AWS::AccountId"]}
    names["AWS::URLSuffix"] = "amazonaws.com"
    read = read_pipeline(text, Deployed(references=names, attribute=lambda name, attribute: f"arn:{name}:{attribute}"))
    assert read.stages[:3] == ("Source", "Build", "UpdatePipeline")
    builds = [action for action in read.actions if action.provider == "CodeBuild"]
    assert {action.configuration["ProjectName"] for action in builds} == set(read.projects)
    assert any(project.cache for project in read.projects.values())
