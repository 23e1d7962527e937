"""The release pipelines of all five workloads, synthesised once."""

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment

from stacks.app import add_releases
from stacks.context import ReleaseSource
from tests.stacks.miniature import Repository, as_committed, candidate
from tests.stacks.templates import make_app

CONNECTION = "arn:aws:codeconnections:us-east-1:123456789012:connection/01234567-89ab-cdef-0123-456789abcdef"
VIRGINIA = Environment(account="123456789012", region="us-east-1")
WORKLOADS = ("duplicates", "query_intent", "question_answering", "spellcheck", "text_classification")
ON_NEURON = ("duplicates", "query_intent", "question_answering")
SHADOW = {"target": "cpu-int8", "instance_type": "ml.c5.xlarge"}
ENDPOINTS = ("question_answering", "spellcheck", "text_classification")


def release(root: Path, connection: str = CONNECTION, **context: Any) -> App:
    app = make_app(root / "cdk.out", {key.replace("_", "-"): value for key, value in context.items()})
    add_releases(app, root, VIRGINIA, ReleaseSource(repository="example/models", connection_arn=connection))
    return app


@pytest.fixture(scope="package")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Repository]:
    """All workloads, built, of which one endpoint was measured: a model that is built in place, with a shadow."""
    root = tmp_path_factory.mktemp("release")
    repositories = {name: as_committed(root, name) for name in WORKLOADS}
    repositories["spellcheck"].change_hosting(target="cpu", shadow=SHADOW)
    repositories["spellcheck"].build(SHADOW["target"])
    repositories["spellcheck"].recommend(candidate(instance_type="ml.c5.xlarge"))
    repositories["text_classification"].change_hosting(triton_version="25.09")  # starts on no host of a job
    proven = repositories["question_answering"].workload_file
    proven.write_text(proven.read_text("utf-8") + "\n[recommender]\nprove = true\n", "utf-8")
    return repositories


@pytest.fixture(scope="package")
def app(repositories: dict[str, Repository]) -> App:
    return release(repositories["spellcheck"].root)


@pytest.fixture(scope="package")
def templates(app: App) -> dict[str, dict[str, Any]]:
    """The pipeline of each workload."""
    assembly = app.synth()
    names = {name: f"{name.title().replace('_', '')}ReleaseStack" for name in WORKLOADS}
    return {name: dict(assembly.get_stack_by_name(stack).template) for name, stack in names.items()}


@pytest.fixture(scope="package")
def template(templates: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The pipeline of spellcheck, whose model is built in place and was measured."""
    return templates["spellcheck"]


def stages(template: dict[str, Any]) -> list[dict[str, Any]]:
    (pipeline,) = (r for r in template["Resources"].values() if r["Type"] == "AWS::CodePipeline::Pipeline")
    return list(pipeline["Properties"]["Stages"])


def all_actions(template: dict[str, Any]) -> list[dict[str, Any]]:
    return [action for stage in stages(template) for action in stage["Actions"]]
