"""The release pipeline: its order, what waits for a recommendation, what its roles may do, what is refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk.assertions import Annotations, Match

from app import add_release
from stacks.context import ReleaseSource, read_release
from tests.stacks.miniature import Repository, as_committed, candidate
from tests.stacks.templates import assert_is_snapshot, lint_matches, nag_findings
from workloads import ROOT, UsageError

SCRIPTS = ROOT / "scripts" / "release"
CONNECTION = "arn:aws:codeconnections:us-east-1:123456789012:connection/01234567-89ab-cdef-0123-456789abcdef"
VIRGINIA = Environment(account="123456789012", region="us-east-1")
WORKLOADS = ("duplicates", "spellcheck", "text_classification")


def release(root: Path) -> App:
    app = App(outdir=str(root / "cdk.out"))
    add_release(app, root, VIRGINIA, ReleaseSource(repository="example/models", connection_arn=CONNECTION))
    return app


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Repository]:
    """Built workloads of two kinds of hosting, of which one endpoint was measured."""
    root = tmp_path_factory.mktemp("release")
    repositories = {name: as_committed(root, name) for name in WORKLOADS}
    repositories["spellcheck"].recommend(candidate(instance_type="ml.c5.xlarge"))
    return repositories


@pytest.fixture(scope="module")
def app(repositories: dict[str, Repository]) -> App:
    return release(repositories["spellcheck"].root)


@pytest.fixture(scope="module")
def template(app: App) -> dict[str, Any]:
    assembly = app.synth()
    return dict(assembly.get_stack_by_name("ReleasePipelineStack").template)


@pytest.fixture(scope="module")
def actions(template: dict[str, Any]) -> dict[str, list[list[str]]]:
    """The actions of each stage, in the groups that run together, in order."""
    (pipeline,) = (r for r in template["Resources"].values() if r["Type"] == "AWS::CodePipeline::Pipeline")
    return {stage["Name"]: in_order(stage["Actions"]) for stage in pipeline["Properties"]["Stages"]}


def in_order(actions: list[dict[str, Any]]) -> list[list[str]]:
    orders = sorted({action["RunOrder"] for action in actions})
    return [sorted(a["Name"] for a in actions if a["RunOrder"] == order) for order in orders]


def test_models_are_built_and_pass_the_parity_gate_before_anything_is_synthesised(
    actions: dict[str, list[list[str]]],
) -> None:
    assert list(actions) == ["Source", "Build", "UpdatePipeline", "Assets", "Beta", "Production"]
    assert actions["Build"] == [
        ["Check"],
        [f"Build-{name}" for name in WORKLOADS],
        [f"ParityGate-{name}" for name in WORKLOADS],
        ["Synth"],
    ]


def test_what_beta_deploys_is_asked_measured_compared_and_proposed(actions: dict[str, list[list[str]]]) -> None:
    endpoints = ("spellcheck", "text_classification")
    _, deployed, *after = actions["Beta"]
    assert deployed == ["DuplicatesStack.Deploy", "SpellcheckStack.Deploy", "TextClassificationStack.Deploy"]
    steps = ("SmokeTest", "Measure", "PerformanceGate", "Propose")
    assert after == [[f"{step}-{name}" for name in endpoints] for step in steps]


def test_production_takes_what_was_measured_on_its_artifact_and_tells_what_waits(
    app: App, actions: dict[str, list[list[str]]]
) -> None:
    assert actions["Production"][-2:] == [
        ["DuplicatesStack.Deploy", "SpellcheckStack.Deploy"],
        ["KeepBaseline-spellcheck"],
    ]
    stack = app.node.find_child("ReleasePipelineStack")
    assert isinstance(stack, Stack)
    Annotations.from_stack(stack).has_info(
        "/ReleasePipelineStack",
        Match.string_like_regexp(
            r"text_classification is not in production yet\. .*recommendation\.json: does not exist"
        ),
    )


def test_there_is_no_production_before_anything_was_measured(tmp_path: Path) -> None:
    as_committed(tmp_path, "spellcheck")
    (stack,) = release(tmp_path).synth().stacks
    names = [stage["Name"] for stage in stages(stack.template)]
    assert names == ["Source", "Build", "UpdatePipeline", "Assets", "Beta"]


def stages(template: dict[str, Any]) -> list[dict[str, Any]]:
    (pipeline,) = (r for r in template["Resources"].values() if r["Type"] == "AWS::CodePipeline::Pipeline")
    return list(pipeline["Properties"]["Stages"])


def test_an_accelerators_model_is_built_by_a_processing_job_and_a_cpus_in_place(template: dict[str, Any]) -> None:
    commands = "\n".join(json.dumps(spec) for spec in build_specs(template))
    assert re.search(r"build_model\.sh text_classification trt-db-ig --on sagemaker --role-arn", commands)
    assert re.search(r"build_model\.sh spellcheck cpu\b(?! --on)", commands)


def build_specs(template: dict[str, Any]) -> list[Any]:
    projects = (r for r in template["Resources"].values() if r["Type"] == "AWS::CodeBuild::Project")
    return [project["Properties"]["Source"].get("BuildSpec") for project in projects]


def test_every_script_of_a_release_is_a_step_and_documented(template: dict[str, Any]) -> None:
    scripts = {file.name for file in SCRIPTS.glob("*.sh")}
    used = set(re.findall(r"scripts/release/([a-z_]+\.sh)", json.dumps(build_specs(template))))
    assert used == scripts
    page = (ROOT / "docs/releasing.md").read_text("utf-8")
    assert {name for name in scripts if f"scripts/release/{name}" in page} == scripts


def test_the_template_is_the_one_last_reviewed(template: dict[str, Any]) -> None:
    text = re.sub(r"[0-9a-f]{64}", "HASH", json.dumps(template, indent=1, sort_keys=True)) + "\n"
    assert_is_snapshot("ReleasePipelineStack", text)


def test_cfn_lint_has_neither_errors_nor_warnings(template: dict[str, Any]) -> None:
    """Ignores what CDK Pipelines writes itself: a DependsOn more than needed, a Join in place of a Sub."""
    style = ("dependency already enforced", "Prefer using Fn::Sub over Fn::Join")
    matches = lint_matches(template, "us-east-1")
    assert [str(match) for match in matches if not any(words in match.message for words in style)] == []


def test_cdk_nag_finds_nothing_unanswered(repositories: dict[str, Repository]) -> None:
    assert nag_findings(release(repositories["spellcheck"].root)) == []


def context(**values: str) -> Callable[[str], Any]:
    return {key.replace("_", "-"): value for key, value in values.items()}.get


def test_without_a_repository_there_is_no_pipeline() -> None:
    assert read_release(context()) is None
    given = read_release(context(release_repository="o/n", release_connection=CONNECTION, release_branch="trunk"))
    assert given == ReleaseSource(repository="o/n", connection_arn=CONNECTION, branch="trunk")


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"release_repository": "o/n"}, "release-connection"),
        ({"release_connection": CONNECTION}, "release-repository"),
    ],
)
def test_half_a_source_is_refused(given: dict[str, str], missing: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_release(context(**given))
    assert str(caught.value) == (
        f"cdk.json: context.{missing}: is missing. A release pipeline needs release-repository (OWNER/NAME) and "
        "release-connection (the ARN of an AWS CodeConnections connection)."
    )


def test_a_wrong_source_is_refused_with_its_form() -> None:
    with pytest.raises(UsageError) as caught:
        read_release(context(release_repository="models", release_connection=CONNECTION))
    assert str(caught.value) == "cdk.json: context.release-repository: got 'models'. Write it as OWNER/NAME."
    with pytest.raises(UsageError) as caught:
        read_release(context(release_repository="o/n", release_connection="connection/1"))
    assert str(caught.value) == (
        "cdk.json: context.release-connection: got 'connection/1'. "
        "Write it as arn:aws:codeconnections:REGION:ACCOUNT:connection/ID."
    )
