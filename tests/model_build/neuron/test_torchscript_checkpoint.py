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
from model_build.build import build
from model_build.checkpoint import resolve
from model_build.encoder import bert
from model_build.encoder.export import example
from model_build.plan import plan
from model_build.remote.remote_build import source_files
from tests import fake_neuron
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


def test_it_is_built_and_answers_as_the_weights_do(
    workloads_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = traced_workload(workloads_copy)
    fake_neuron.install(monkeypatch, "torch_neuron", tmp_path / "site")
    planned = plan(source, "inf1", tmp_path)
    assert "(int32[1, 16], float16[1, 16], int32[1, 16], int32[1], int32[1, 16])" in planned.document()["compiler"][0]
    build(planned)
    predictor = Predictor.load(planned.repository)
    examples = planned.examples[:8]
    given = predictor.predict([example.row for example in examples])
    known: Any = source.workload.model
    network = bert.load(resolve(load_workload(NAME), ROOT / "build" / "checkpoints"), known)
    encodings: Any = predictor.preprocessor.encode([example.row for example in examples])
    for answer, encoding in zip(given, encodings, strict=True):
        assert isinstance(answer, dict)
        length = len(encoding)
        rows = {
            "input_ids": torch.tensor([encoding.token_ids]),
            "attention_mask": torch.ones(1, length, dtype=torch.long),
            "position_ids": torch.arange(length)[None],
            "valid_length": torch.tensor([length]),
            "token_type_ids": torch.tensor([encoding.type_ids]),
        }
        with torch.no_grad():
            [logits] = network(*(rows[name] for name in known.inputs))
        assert answer["LABEL"] == known.labels[int(logits.argmax())]
        assert np.isclose(answer["SCORE"], torch.softmax(logits, -1).max().item(), atol=1e-4)


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


def test_one_that_holds_on_to_its_shape_gives_golden_rows_too(
    workloads_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = traced_workload(workloads_copy)
    fake_neuron.install(monkeypatch, "torch_neuron", tmp_path / "site")
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


def test_other_runtimes_refuse_it(workloads_copy: Path, tmp_path: Path) -> None:
    source = traced_workload(workloads_copy)
    with pytest.raises(UsageError) as caught:
        plan(source, "cpu", tmp_path)
    assert str(caught.value) == (
        f"{source.file}: targets.cpu.runtime: 'onnxruntime' is not built from a TorchScript file, which "
        "model.checkpoint names. Allowed: neuron, neuronx; or save the weights with `save_pretrained(…)`."
    )


def test_a_file_that_returns_something_else_is_refused_before_it_is_compiled(
    workloads_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class One(torch.nn.Module):
        def forward(self, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
            return a + b + c + e

    source = traced_workload(workloads_copy)
    file = source.path / "traced" / "cpu_model.pt"
    ones = torch.ones(1, 4, dtype=torch.long)
    jit.save(jit.trace(One(), (ones, ones, ones, torch.ones(1), ones)), str(file))
    fake_neuron.install(monkeypatch, "torch_neuron", tmp_path / "site")
    with pytest.raises(UsageError) as caught:
        build(plan(source, "inf1", tmp_path))
    assert str(caught.value) == (
        f"{file}: returns Tensor, but for text-classification it has to return a tuple of logits."
    )
    file.write_bytes(b"no TorchScript")
    with pytest.raises(UsageError, match="cannot be used"):
        build(plan(source, "inf1", tmp_path))
    file.unlink()
    with pytest.raises(UsageError) as caught:
        plan(source, "inf1", tmp_path)
    assert str(caught.value) == f"{file}: does not exist. model.checkpoint names it as a TorchScript file."


def test_it_travels_to_the_machine_that_builds(workloads_copy: Path) -> None:
    names = source_files(traced_workload(workloads_copy), ROOT)
    assert {f"workloads/{NAME}/traced/{name}" for name in ("cpu_model.pt", "tokenizer.json")} <= names.keys()


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


def test_a_torchscript_module_beside_the_graphs_tokenises(
    workloads_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_neuron.install(monkeypatch, "torch_neuron", tmp_path / "site")
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


def test_one_that_gives_tokens_that_the_model_does_not_have_is_refused(
    workloads_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_neuron.install(monkeypatch, "torch_neuron", tmp_path / "site")
    source = preprocessed_workload(workloads_copy)
    jit.save(jit.script(Letters(1_000_000)), str(source.path / "letters.pt"))
    with pytest.raises(UsageError) as caught:
        build(plan(source, "inf1", tmp_path))
    assert str(caught.value) == (
        f"{source.path / 'letters.pt'}: cannot be used (IndexError: index out of range in self). Save or copy it again."
    )


def test_it_is_refused_where_nothing_would_run_it(workloads_copy: Path, tmp_path: Path) -> None:
    source = preprocessed_workload(workloads_copy)
    with pytest.raises(UsageError) as caught:
        plan(source, "cpu", tmp_path)
    assert str(caught.value) == (
        f"{source.file}: targets.cpu.runtime: 'onnxruntime' does not tokenise by a TorchScript module, which "
        "model.preprocess names. Allowed: neuron, neuronx."
    )
    answers = preprocessed_workload(workloads_copy, "question_answering")
    with pytest.raises(UsageError, match=r"model\.preprocess: question-answering needs the position of each token"):
        plan(answers, "inf2", tmp_path)
