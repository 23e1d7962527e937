"""Lint recognises the archive of a model for Neuron, and finds what its server would reject."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from containers.encoder.goldens import GOLDENS, Golden, to_json
from model_build.lint.check import lint
from model_build.lint.finding import RuntimeContext
from model_build.plan import plan
from model_build.triton import repository
from tests.model_build.lint.good_archives import TORCHSCRIPT, Tree, write
from tests.model_build.miniatures.tiny_bert import make_workload

LENGTHS = (16, 32)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository in miniature with what a build for Inf1 packs in laid-out/; the graphs alone are not real."""
    root = tmp_path_factory.mktemp("neuron")
    planned = plan(make_workload(root / "workloads", "text-pair-scoring"), "inf1", root)
    graphs = root / "graphs"
    graphs.mkdir()
    goldens = [Golden(1, length, (2, 7, 3), (0, 0, 0), {"logits": [1.0, 0.0], "score": [0.5]}) for length in LENGTHS]
    (graphs / GOLDENS).write_text(to_json(goldens))
    for length in LENGTHS:
        (graphs / f"model.{length}.neuron.pt").write_bytes(TORCHSCRIPT)
    repository.lay_out(root / "laid-out", planned.contents(graphs))
    return root


@pytest.fixture
def tree(root: Path) -> Tree:
    return {file.name: file.read_bytes() for file in (root / "laid-out").iterdir()}


@pytest.fixture
def on_inf1(root: Path) -> RuntimeContext:
    payloads = (root / "workloads" / "tiny" / "payloads.jsonl",)
    return RuntimeContext(instance_types=("inf1.6xlarge",), payloads=payloads, image="25.09")


def test_what_this_project_lays_out_for_neuron_has_no_findings(root: Path, tree: Tree, on_inf1: RuntimeContext) -> None:
    assert lint(root / "laid-out", on_inf1) == []
    assert lint(root / "laid-out", RuntimeContext()) == []


def put(name: str, content: bytes) -> Callable[[Tree], None]:
    return lambda tree: tree.update({name: content})


@pytest.mark.parametrize(
    ("plant", "code", "what"),
    [
        (
            lambda tree: tree.pop("tokenizer.json"),
            "missing-neuron-file",
            "tokenizer.json is not at the root of the archive.",
        ),
        (
            lambda tree: tree.pop("model.16.neuron.pt"),
            "missing-neuron-file",
            "model.16.neuron.pt is not at the root of the archive.",
        ),
        (
            put("settings.json", b"{}"),
            "unreadable-neuron-file",
            "settings.json cannot be read ('pad_to').",
        ),
        (put("weights.pkl", b"\x80\x02."), "pickle", "Pickles: 'weights.pkl'."),
    ],
)
def test_a_fault_is_found(
    plant: Callable[[Tree], Any], code: str, what: str, tmp_path: Path, tree: Tree, on_inf1: RuntimeContext
) -> None:
    plant(tree)
    assert [(each.code, each.what) for each in lint(write(tree, tmp_path), on_inf1)] == [(code, what)]


def test_a_type_without_neuron_cores_is_refused(tmp_path: Path, tree: Tree) -> None:
    [finding] = lint(write(tree, tmp_path), RuntimeContext(instance_types=("ml.inf2.xlarge", "ml.g5.xlarge")))
    assert (finding.code, finding.what) == (
        "wrong-hardware",
        "The model is compiled for NeuronCores, which 'ml.g5.xlarge' lacks.",
    )
