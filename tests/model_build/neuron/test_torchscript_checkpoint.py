"""A TorchScript file is compiled for Inferentia unchanged, and called like the published deployment."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from containers.encoder import goldens
from containers.encoder.predictor import Predictor
from containers.encoder.row import Refusal
from containers.encoder.tensors import Encoding
from model_build.checkpoint import resolve
from model_build.encoder import bert
from model_build.encoder.export import example
from model_build.encoder.reference import Reference
from model_build.execute import build
from model_build.plan import plan
from model_build.remote.remote_build import source_files
from tests import fake_neuron
from tests.builders import message_of
from workloads import ROOT, UsageError, WorkloadFolder, load_workload

NAME = "query_intent"
jit: Any = torch.jit


def keep_a_few_rows(folder: Path) -> None:
    """A build runs its calibration rows through the model."""
    evaluation = folder / "evaluation.jsonl"
    evaluation.write_text("".join(evaluation.read_text("utf-8").splitlines(True)[:12]), "utf-8")


def traced_workload(folder: Path) -> WorkloadFolder:
    """Copies query_intent, with a traced file in the place of its weights; its Inf1 has the published call's types."""
    source = load_workload(NAME)
    checkpoint = resolve(source, ROOT / "build" / "checkpoints")
    model: Any = source.workload.model
    copy = folder / NAME
    shutil.copytree(source.path, copy, ignore=shutil.ignore_patterns("checkpoint"))
    keep_a_few_rows(copy)
    (copy / "traced").mkdir()
    shutil.copy(checkpoint.tokenizer, copy / "traced" / "tokenizer.json")
    network = bert.load(checkpoint, model)
    with torch.no_grad():
        jit.save(jit.trace(network, example(network, 2, 8)), str(copy / "traced" / "cpu_model.pt"))
    file = copy / "workload.toml"
    text = file.read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("backbone = ")]
    text = "\n".join(
        'checkpoint = "./traced/cpu_model.pt"' if line.startswith("checkpoint = ") else line for line in lines
    )
    file.write_text(text, "utf-8")
    return load_workload(NAME, folder)


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_neuron.install(monkeypatch, "torch_neuron", tmp_path / "site")


def refusal(source: WorkloadFolder, root: Path, target: str = "inf1") -> str:
    def built() -> None:
        build(plan(source, target, root))

    return message_of(UsageError, built)


def test_it_is_built_and_answers_as_the_weights_do(workloads_copy: Path, tmp_path: Path) -> None:
    source = traced_workload(workloads_copy)
    planned = plan(source, "inf1", tmp_path)
    assert "(int32[1, 16], float16[1, 16], int32[1, 16], int32[1], int32[1, 16])" in planned.document()["compiler"][0]
    build(planned)
    rows = [example.row for example in planned.examples[:8]]
    original = load_workload(NAME)
    model: Any = original.workload.model
    reference = Reference(resolve(original, ROOT / "build" / "checkpoints"), model)
    for answer, [outputs] in zip(
        Predictor.load(planned.repository).predict(rows), reference.outputs(rows), strict=True
    ):
        assert isinstance(answer, dict)
        scores = torch.softmax(torch.from_numpy(outputs["logits"]), -1)
        assert answer["LABEL"] == model.labels[int(scores.argmax())]
        assert np.isclose(answer["SCORE"], scores.max().item(), atol=1e-4)


@torch.jit.script
def of_a_compiled_shape(ids: torch.Tensor) -> torch.Tensor:
    assert ids.shape[0] == 1, "traced with another number of rows"
    assert ids.shape[1] == 16 or ids.shape[1] == 32, "traced with another length"
    return ids


class OneShape(torch.nn.Module):
    """Takes the shapes that are compiled and no others, as a trace that holds on to its shape."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: torch.Tensor, *others: torch.Tensor) -> Any:
        return self.network(of_a_compiled_shape(ids), *others)


def test_one_that_holds_on_to_its_shape_gives_golden_rows_too(workloads_copy: Path, tmp_path: Path) -> None:
    source = traced_workload(workloads_copy)
    build(plan(source, "inf1", tmp_path))
    free = goldens.load(tmp_path / "build" / NAME / "inf1" / "repository")
    file = source.path / "traced" / "cpu_model.pt"
    ids = torch.ones(1, 16, dtype=torch.int32)
    examples = (ids, ids.half(), ids, torch.full((1,), 16, dtype=torch.int32), ids)
    jit.save(jit.trace(OneShape(jit.load(str(file))), examples), str(file))
    build(plan(source, "inf1", tmp_path))
    held = goldens.load(tmp_path / "build" / NAME / "inf1" / "repository")
    assert held[0]
    assert held == free


def test_a_file_that_cannot_be_compiled_is_refused(workloads_copy: Path, tmp_path: Path) -> None:
    """It is called once before it is compiled. Other runtimes refuse any."""

    class One(torch.nn.Module):
        def forward(self, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
            return a + b + c + e

    source = traced_workload(workloads_copy)
    assert refusal(source, tmp_path, "cpu") == (
        f"{source.file}: targets.cpu.runtime: 'onnxruntime' is not built from a TorchScript file, which "
        "model.checkpoint names. Allowed: neuron, neuronx; or save the weights with `save_pretrained(…)`."
    )
    names = source_files(source, ROOT)
    assert {f"workloads/{NAME}/traced/{name}" for name in ("cpu_model.pt", "tokenizer.json")} <= names.keys()
    file = source.path / "traced" / "cpu_model.pt"
    ones = torch.ones(1, 4, dtype=torch.long)
    jit.save(jit.trace(One(), (ones, ones, ones, torch.ones(1), ones)), str(file))
    assert refusal(source, tmp_path) == (
        f"{file}: returns Tensor, but for text-classification it has to return a tuple of logits."
    )
    file.write_bytes(b"no TorchScript")
    assert "cannot be used" in refusal(source, tmp_path)
    file.unlink()
    assert refusal(source, tmp_path) == f"{file}: does not exist. model.checkpoint names it as a TorchScript file."


class Letters(torch.nn.Module):
    """Tokenises by letters, a to z as 4 to 29 and others as one token, between [CLS] and [SEP]."""

    def __init__(self, other: int = 1) -> None:
        super().__init__()
        self.other = other

    def forward(self, rows: list[list[str]]) -> tuple[list[list[int]], list[list[int]]]:
        ids: list[list[int]] = []
        types: list[list[int]] = []
        for row in rows:
            tokens = [2]
            for letter in row[0]:
                token = ord(letter) - 93
                tokens.append(token if 4 <= token < 30 else self.other)
            tokens.append(3)
            ids.append(tokens)
            types.append([0] * len(tokens))
        return ids, types


def preprocessed_workload(folder: Path, name: str = NAME) -> WorkloadFolder:
    """Copies a workload, with a TorchScript module that tokenises."""
    for each in (name, "product_bert"):
        shutil.copytree(ROOT / "workloads" / each, folder / each, dirs_exist_ok=True)
    keep_a_few_rows(folder / name)
    jit.save(jit.script(Letters()), str(folder / name / "letters.pt"))
    file = folder / name / "workload.toml"
    file.write_text(file.read_text("utf-8").replace("[model]\n", '[model]\npreprocess = "./letters.pt"\n'), "utf-8")
    return load_workload(name, folder)


def test_a_torchscript_module_beside_the_graphs_tokenises(workloads_copy: Path, tmp_path: Path) -> None:
    source = preprocessed_workload(workloads_copy)
    planned = plan(source, "inf1", tmp_path)
    build(planned)
    assert "workloads/query_intent/letters.pt" in source_files(source, ROOT)
    predictor = Predictor.load(planned.repository)
    encodings = predictor.preprocessor.encode([{"query": "abc"}, {"query": "z"}, {"query": "a" * 31}])
    assert encodings[:2] == [Encoding((2, 4, 5, 6, 3), (0,) * 5), Encoding((2, 29, 3), (0,) * 3)]
    assert encodings[2] == Refusal("has 33 tokens, at most 32 are allowed")
    known: Any = source.workload.model
    [answer] = predictor.predict([{"query": "abc"}])
    assert isinstance(answer, dict)
    assert answer["LABEL"] in known.labels


def test_a_tokenising_module_that_does_not_fit_is_refused(workloads_copy: Path, tmp_path: Path) -> None:
    source = preprocessed_workload(workloads_copy)
    assert refusal(source, tmp_path, "cpu") == (
        f"{source.file}: targets.cpu.runtime: 'onnxruntime' does not tokenise by a TorchScript module, which "
        "model.preprocess names. Allowed: neuron, neuronx."
    )
    jit.save(jit.script(Letters(1_000_000)), str(source.path / "letters.pt"))
    assert refusal(source, tmp_path) == (
        f"{source.path / 'letters.pt'}: cannot be used (IndexError: index out of range in self). Save or copy it again."
    )
    answers = preprocessed_workload(workloads_copy, "question_answering")
    assert "model.preprocess: question-answering needs the position of each token" in refusal(answers, tmp_path, "inf2")
