"""Lint recognises the archive of a model for Neuron, and finds what its server would reject."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from containers.encoder.goldens import GOLDENS, PARITY, Golden, to_json
from model_build.lint import Finding, RuntimeContext, lint, unmade_checks
from model_build.plan import plan
from model_build.triton import repository
from tests.model_build.lint.good_archives import TORCH_SAVE, TORCHSCRIPT, Tree, write
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


def test_packed_with_a_dot_it_is_the_same(tmp_path: Path, tree: Tree, on_inf1: RuntimeContext) -> None:
    assert lint(write(tree, tmp_path), on_inf1) == []
    assert lint(write({f"./{name}": entry for name, entry in tree.items()}, tmp_path), on_inf1) == []


def edit(name: str, **changes: Any) -> Callable[[Tree], None]:
    def plant(tree: Tree) -> None:
        text = tree[name]
        assert isinstance(text, bytes)
        tree[name] = json.dumps({**json.loads(text), **changes}).encode()

    return plant


def put(name: str, content: bytes) -> Callable[[Tree], None]:
    return lambda tree: tree.update({name: content})


@pytest.mark.parametrize(
    ("plant", "code", "where", "what"),
    [
        *(
            (
                lambda tree, name=name: tree.pop(name),
                "missing-neuron-file",
                name,
                f"{name} is not at the root of the archive.",
            )
            for name in ("settings.json", "server.json", "tokenizer.json", GOLDENS, PARITY)
        ),
        (
            put("server.json", b"{}"),
            "unreadable-neuron-file",
            "server.json",
            "server.json cannot be read (KeyError: 'preferred_batch_sizes').",
        ),
        (
            put(PARITY, b"[]"),
            "unreadable-neuron-file",
            PARITY,
            "parity.json cannot be read (TypeError: containers.encoder.goldens.ParityLimits() argument after ** must "
            "be a mapping, not list).",
        ),
        (
            edit("settings.json", task="translation"),
            "unreadable-neuron-file",
            "settings.json",
            "settings.json cannot be read (ValueError: task: got 'translation'; allowed: text-classification, "
            "text-pair-scoring, text-ranking, token-classification, feature-extraction, question-answering.).",
        ),
        (
            lambda tree: tree.pop("model.16.neuron.pt"),
            "missing-model-file",
            "model.16.neuron.pt",
            "model.16.neuron.pt is missing, which pad_to of settings.json requires. The archive has "
            "'model.32.neuron.pt'.",
        ),
        (
            put("model.32.neuron.pt", TORCH_SAVE),
            "missing-model-file",
            "model.32.neuron.pt",
            "model.32.neuron.pt is not a TorchScript file, which torch.jit.save writes.",
        ),
        (
            put(GOLDENS, to_json([Golden(1, 32, (2,), (0,), {"logits": [1.0]})]).encode()),
            "no-golden-row",
            GOLDENS,
            "goldens.json has no row for the graphs of 16 tokens.",
        ),
    ],
)
def test_what_the_server_would_refuse_is_found_before(
    plant: Callable[[Tree], Any],
    code: str,
    where: str,
    what: str,
    tmp_path: Path,
    tree: Tree,
    on_inf1: RuntimeContext,
) -> None:
    plant(tree)
    assert [(each.severity, each.code, each.where, each.what) for each in found(tree, tmp_path, on_inf1)] == [
        ("error", code, where, what)
    ]


def found(tree: Tree, folder: Path, context: RuntimeContext) -> list[Finding]:
    return lint(write(tree, folder), context)


def test_a_type_without_neuron_cores_is_refused(tmp_path: Path, tree: Tree) -> None:
    [finding] = found(tree, tmp_path, RuntimeContext(instance_types=("ml.inf2.xlarge", "ml.g5.xlarge")))
    assert (finding.code, finding.what) == (
        "wrong-hardware",
        "The model is compiled for NeuronCores, which 'ml.g5.xlarge' lacks.",
    )


def test_requests_are_held_to_the_fields_and_the_batch_that_the_server_takes(tmp_path: Path, tree: Tree) -> None:
    payloads = tmp_path / "payloads.jsonl"
    payloads.write_text('{"title": "a lamp", "other": "a lamp"}\n')
    [finding] = found(tree, tmp_path, RuntimeContext(payloads=(payloads,)))
    assert (finding.code, finding.what) == ("payload-input", "The request lacks the input 'BRAND' of 'tiny'.")


def test_on_inferentia_no_check_of_triton_is_missed() -> None:
    assert [unmade.check for unmade in unmade_checks(RuntimeContext(instance_types=("inf2.xlarge",)))] == [
        "payloads against the model's signature"
    ]


def test_links_and_pickles_are_found_in_it_too(tmp_path: Path, tree: Tree, on_inf1: RuntimeContext) -> None:
    tree["weights.pkl"] = b"\x80\x02."
    assert [finding.code for finding in found(tree, tmp_path, on_inf1)] == ["pickle"]
