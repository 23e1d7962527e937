"""A published experiment's build: another model, every request of one length, and a place of its own."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from model_build.checkpoint import resolve
from model_build.checkpoint.architectures import write_random
from model_build.encoder.reference import Reference
from model_build.execute import build, verify_recorded
from model_build.plan import BuildPlan, plan
from tests.builders import message_of
from tests.model_build.miniatures import tiny_bert
from workloads import (
    EncoderModel,
    MissingArtifact,
    RandomWeights,
    UsageError,
    WorkloadFolder,
    load_artifact,
)

PUBLISHED = """
[published.small]
inputs = ["input_ids", "attention_mask"]
variants = ["alone", "twice"]
baseline = "alone"
instance_types = ["ml.c5.xlarge"]
traffic = "quick"
checkpoint = { architecture = "bert-base-uncased", weights = "random", shrink = 12 }
padding = "max_length"
truncation = true

[objective]
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> WorkloadFolder:
    """The workload `tiny` with minimum quality that no random weights reach."""
    root = tmp_path_factory.mktemp("published")
    made = tiny_bert.make_workload(root / "workloads", "text-classification", examples=70)
    text = made.file.read_text("utf-8").replace("= -1.0", "= 0.9").replace("[objective]\n", PUBLISHED, 1)
    text = text.replace(
        '[targets.cpu-torchscript]\nruntime = "torchscript"', '[targets.traced]\nruntime = "torchscript"'
    )
    made.file.write_text(text, "utf-8")
    return WorkloadFolder(made.path).as_published("small")


@pytest.fixture(scope="module")
def built(source: WorkloadFolder) -> BuildPlan:
    planned = plan(source, "traced", source.path.parents[1])
    build(planned)
    return planned


def test_random_weights_are_held_to_the_originals_numbers_and_to_no_label(built: BuildPlan) -> None:
    figures = verify_recorded(built)
    assert figures.original["accuracy"] < 0.9
    assert figures.max_logit_difference < 1e-4
    assert figures.examples == 64


def test_it_lies_where_the_workloads_own_build_does_not(built: BuildPlan) -> None:
    root = built.root
    assert built.artifact == root / "build/published/small/build/tiny/traced/artifact.json"
    assert load_artifact(built.builds, "tiny", "traced", "small").workload == "tiny"
    with pytest.raises(MissingArtifact):
        load_artifact(root, "tiny", "traced")
    shutil.copytree(built.artifact.parent, root / "build/published/small/build/tiny/other")
    with pytest.raises(MissingArtifact, match="--target alone --published small`"):
        load_artifact(built.builds, "tiny", "alone", "small")


def test_an_architecture_is_divided_by_one_key_or_refused(source: WorkloadFolder, tmp_path: Path) -> None:
    model = source.workload.model
    assert not isinstance(model, RandomWeights)
    made = RandomWeights(architecture="bert-large-uncased", weights="random", shrink=16)
    assert message_of(UsageError, write_random, made, model, tmp_path) == (
        "model.checkpoint.shrink: 16 does not divide bert-large-uncased's num_hidden_layers 24."
    )
    assert "12th" in str(built_checkpoint(source))


def built_checkpoint(source: WorkloadFolder) -> Path:
    return plan(source, "traced", source.path.parents[1]).checkpoint.folder


@pytest.mark.parametrize(
    ("keys", "sizes"),
    [
        ({"task": "token-classification", "labels": ("O", "B-SIZE")}, {"logits": (7, 2)}),
        ({"task": "text-ranking"}, {"logits": (1,)}),
        ({"task": "text-classification", "problem_type": "regression"}, {"logits": (1,)}),
        ({"task": "feature-extraction", "dimensions": 20}, {"embedding": (20,)}),
    ],
    ids=lambda value: value.get("problem_type", value.get("task")),
)
def test_random_weights_have_the_head_of_every_task(
    keys: dict[str, Any], sizes: dict[str, tuple[int, ...]], source: WorkloadFolder
) -> None:
    """The checkpoint is read, and transformers' own class for the task runs it."""
    made = {"architecture": "bert-base-uncased", "weights": "random", "shrink": 12}
    table = {"checkpoint": made, "max_input_tokens": 32, **keys}
    model = TypeAdapter[EncoderModel](EncoderModel).validate_python(table)
    other = WorkloadFolder(source.path)
    other.workload = source.workload.model_copy(update={"model": model})
    checkpoint = resolve(other, source.path.parents[1] / "cache")
    [[outputs]] = Reference(checkpoint, model).outputs([dict.fromkeys(model.fields, "a b c d e")])
    assert {name: output.shape for name, output in outputs.items()} == sizes


def test_tokens_that_a_torchscript_module_makes_are_not_cut(source: WorkloadFolder) -> None:
    model = source.workload.model
    assert isinstance(model, EncoderModel)
    other = WorkloadFolder(source.path)
    changed = model.model_copy(update={"preprocess": "./p.pt"})
    other.workload = source.workload.model_copy(update={"model": changed})
    with pytest.raises(UsageError, match=r"model\.truncation: the module of model\.preprocess decides"):
        plan(other, "inf1", source.path.parents[1])
