"""Every engine of the encoder tasks gives the network's own outputs: one contract for all runtimes.

ONNX Runtime, OpenVINO, TorchScript, CUDA graphs (on CPU, or on a GPU if there is one), Neuron (a fake of its package).
"""

import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from containers.encoder.engines import load_engine
from containers.encoder.engines.cuda_engine import CudaEngine, CudaProgram
from containers.encoder.engines.engine import Engine, FixedBatch, Lanes, MixedLengths
from containers.encoder.engines.neuron_engine import CORES, PLACEMENT, NeuronEngine
from containers.encoder.predictor import Predictor
from containers.encoder.row import Refusal
from containers.encoder.settings import Settings
from containers.encoder.tensors import Encoding, per_token, tensors
from containers.neuron.worker import warm_up
from model_build.torch_threads import threads_kept
from tests import fake_neuron
from tests.containers.encoder.encoder_miniature import CLASSIFICATION, LETTERS, SETTINGS, Graph, flat, make_folder
from tests.containers.neuron.neuron_server import COMPILED, compile_neuron
from tests.containers.text2text.test_static_engines import Recorder, needs_gpu

BATCHES = [(1, 3), (3, 8), (4, 8), (3, 5), (1, 3), (7, 17), (8, 24)]
"""Rows and length of each batch; the fifth has the size of the first."""
KINDS = ["text-classification", "text-pair-scoring", "question-answering"]
"""The tasks with different outputs: a label, a score and a label, and a value per token."""


@dataclass(frozen=True)
class Made:
    settings: Settings
    engine: Engine


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Returns graphs of the fake, which is installed as torch_neuron for this module."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield compile_neuron(tmp_path_factory.mktemp("compiled") / "model", monkeypatch)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    with threads_kept():
        yield


def spread(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    """Sets what the launcher sets for a process that spreads its batches over its cores."""
    monkeypatch.setenv(PLACEMENT, "data-parallel")
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", f"4-{3 + cores}")
    monkeypatch.setenv(CORES, str(cores))


@pytest.fixture(params=["torch_neuron", "torch_neuronx"])
def lanes(compiled: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Lanes:
    """Returns the engine over three cores of Inf1, or of Inf2."""
    spread(monkeypatch, 3)
    monkeypatch.setitem(sys.modules, request.param, fake_neuron.modules()[request.param])
    engine = load_engine.load(compiled, COMPILED)
    assert isinstance(engine, Lanes)
    return engine


ENGINES = [
    *((kind, runtime) for kind in SETTINGS for runtime in ("model.onnx", "model.pt", "model.xml")),
    *((kind, "cuda on cpu") for kind in KINDS),
    *(pytest.param((kind, "cuda:0"), marks=needs_gpu) for kind in KINDS),
    *(("text-classification", runtime) for runtime in ("neuron", "torch_neuron", "torch_neuronx")),
]


@pytest.fixture(params=ENGINES, ids=str)
def made(request: pytest.FixtureRequest, compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    kind, runtime = request.param
    settings = SETTINGS[kind]
    if runtime.startswith("model."):
        return Made(settings, load_engine.load(make_folder(tmp_path / "model", settings, runtime), settings))
    if runtime.startswith("cuda"):
        file = make_folder(tmp_path / "model", settings, "model.pt") / "model.pt"
        return Made(settings, CudaEngine(file, settings, "cpu" if runtime == "cuda on cpu" else runtime))
    if runtime != "neuron":
        spread(monkeypatch, 3)
        monkeypatch.setitem(sys.modules, runtime, fake_neuron.modules()[runtime])
    return Made(COMPILED, load_engine.load(compiled, COMPILED))


def batch(settings: Settings, rows: int, length: int) -> dict[str, NDArray[Any]]:
    """Returns tokens with padding on the right. Only the first row is `length` long."""
    rng = np.random.default_rng(rows * 100 + length)
    sizes = [length, *rng.integers(1, length + 1, rows - 1).tolist()]
    encodings = [Encoding(tuple(rng.integers(4, 50, size).tolist()), (0,) * size) for size in sizes]
    return dict(tensors(encodings, settings.inputs, settings.pad_to, settings.pad_token_id))


def difference(settings: Settings, engine: Engine, rows: int, length: int) -> float:
    """Returns the largest difference from the network in real tokens, after a check of names, types and shapes."""
    given = batch(settings, rows, length)
    real = given["attention_mask"].astype(bool)
    with torch.inference_mode():
        expected = Graph(settings).eval()(*(torch.from_numpy(given[name]) for name in settings.inputs))
    outputs = engine.run(given)
    assert tuple(outputs) == settings.graph_outputs
    assert {name: str(output.dtype) for name, output in outputs.items()} == dict.fromkeys(outputs, "float32")
    differences = []
    for (name, output), network in zip(outputs.items(), expected, strict=True):
        assert output.shape == tuple(network.shape)
        off = np.abs(output - network.numpy())
        differences.append(float((off[real] if per_token(name, output) else off).max()))
    return max(differences)


def test_an_engine_gives_the_networks_outputs_for_every_batch(made: Made) -> None:
    assert max(difference(made.settings, made.engine, *size) for size in BATCHES) < 1e-5


def test_an_answer_does_not_change_with_the_next_batch(made: Made) -> None:
    first = made.engine.run(batch(made.settings, 2, 8))
    copies = {name: output.copy() for name, output in first.items()}
    made.engine.run({name: values[::-1].copy() for name, values in batch(made.settings, 2, 8).items()})
    assert all(np.array_equal(first[name], copies[name]) for name in copies)


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_fixed_batch_size_takes_any_number_of_rows(made: Made, batch_size: int) -> None:
    assert difference(made.settings, FixedBatch(made.engine, batch_size), 7, 17) < 1e-5


class Launches:
    """An engine that records the size of each launch, and returns each row's own tokens."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, ...]] = []

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        ids = tensors["input_ids"]
        self.sizes.append(ids.shape)
        return {"start_logits": ids * 2.0, "score": ids[:, 0] * 3.0}


def test_rows_of_mixed_lengths_run_in_launches_with_little_padding() -> None:
    given = {"input_ids": np.arange(1, 121).reshape(6, 20), "attention_mask": np.ones((6, 20), np.int64)}
    for row, length in enumerate((3, 20, 4, 18, 3, 1)):
        given["attention_mask"][row, length:] = 0
    for launch_tokens, sizes in ((0, [(1, 1), (2, 3), (1, 4), (1, 18), (1, 20)]), (8, [(4, 4), (2, 20)])):
        engine = Launches()
        outputs = MixedLengths(engine, launch_tokens).run(given)
        assert engine.sizes == sizes
        assert (outputs["score"] == given["input_ids"][:, 0] * 3.0).all()
        assert (
            outputs["start_logits"] * given["attention_mask"] == given["input_ids"] * given["attention_mask"] * 2
        ).all()
    MixedLengths(engine, 1000).run(given)
    MixedLengths(engine, 0).run({"input_ids": given["input_ids"]})
    assert engine.sizes[-2:] == [(6, 20), (6, 20)]


def make_rows(settings: Settings, count: int = 12) -> list[dict[str, str]]:
    """Makes rows of different lengths."""
    random = Random(7)
    return [
        {field: " ".join(random.choices(LETTERS, k=random.randint(1, 6))) for field in settings.fields}
        for _ in range(count)
    ]


@pytest.fixture(scope="module", params=SETTINGS)
def predictor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return Predictor.load(
        make_folder(tmp_path_factory.mktemp("made") / "folder", SETTINGS[request.param], "model.onnx")
    )


def test_batching_and_refused_rows_change_no_answer(predictor: Predictor) -> None:
    rows = make_rows(predictor.settings)
    for row, answer in zip(rows, predictor.predict(rows), strict=True):
        [alone] = predictor.predict([row])
        assert flat(answer) == pytest.approx(flat(alone), abs=1e-5)
    answers = predictor.predict([{}, rows[0], {}, rows[1]])
    assert [type(answer) for answer in answers] == [Refusal, dict, Refusal, dict]
    assert [answers[1], answers[3]] == predictor.predict(rows[:2])


def recorded(program: CudaProgram, work: Callable[[], None]) -> Callable[[], None]:
    recorder = Recorder()
    with recorder:
        work()
    return recorder.replay


@pytest.mark.parametrize("kind", KINDS)
def test_a_captured_graph_answers_every_batch_of_its_size(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CudaProgram, "_captured", recorded)
    settings = SETTINGS[kind]
    engine = CudaEngine(make_folder(tmp_path / "model", settings, "model.pt") / "model.pt", settings, "cpu")
    assert max(difference(settings, engine, *size) for size in BATCHES) < 1e-5


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, int]]]:
    """Records for each batch the rows of each core."""
    seen: list[list[tuple[int, int]]] = []
    forward = fake_neuron.DataParallel.forward

    def record(parallel: fake_neuron.DataParallel, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = forward(parallel, *inputs)
        seen.append(parallel.ran)
        return outputs

    monkeypatch.setattr(fake_neuron.DataParallel, "forward", record)
    return seen


@pytest.mark.parametrize(("rows", "calls"), [(1, (1, 1)), (6, (1, 2)), (7, (2, 3))])
def test_every_core_of_a_chip_gets_the_compiled_batch(
    lanes: Lanes, ran: list[list[tuple[int, int]]], rows: int, calls: tuple[int, int]
) -> None:
    """Both chips require it without dynamic batching. Inf1 has four cores on a chip, and Inf2 two."""
    lanes.run(batch(COMPILED, rows, 8))
    chips = {1: [[(0, 2), (1, 2), (2, 2)]], 2: [[(0, 2), (1, 2)], [(2, 2)]]}[lanes.count]
    assert all(call in chips for call in ran)
    assert len(ran) == calls[lanes.count - 1]


def test_the_warm_up_runs_on_every_core(
    compiled: Path, monkeypatch: pytest.MonkeyPatch, ran: list[list[tuple[int, int]]]
) -> None:
    """10 cores are two chips and a half."""
    spread(monkeypatch, 10)
    predictor = Predictor.load(compiled)
    assert isinstance(predictor.engine, Lanes)
    assert (predictor.engine.count, predictor.engine.rows) == (3, 4 * COMPILED.batch_size)
    warm_up(predictor)
    cores = [core for call in ran for core, _ in call]
    assert min(cores.count(core) for core in range(10)) == 2 * len(COMPILED.pad_to)


def no_model(folder: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_engine.load(folder, CLASSIFICATION)


def no_gpu(folder: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (folder / load_engine.CUDA_FILES["cuda-graphs"]).touch()
    load_engine.load(folder, CLASSIFICATION)


def no_length(folder: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_engine.load(shutil.copytree(compiled, folder / "new"), replace(COMPILED, pad_to=(8, 64)))


def no_package(folder: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch_neuron")
    load_engine.load(compiled, COMPILED)


def other_rows(folder: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    NeuronEngine({8: lambda *tensors: (torch.zeros(1, 3),)}, COMPILED).run(batch(COMPILED, 2, 8))


NO_PACKAGE = "the model is compiled for Neuron, and neither torch_neuronx nor torch_neuron is installed"


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (no_model, FileNotFoundError, "{folder} holds no model: none of model.onnx, model.pt, model.xml is there."),
        (no_gpu, RuntimeError, "{folder}/model.cuda.pt runs on an NVIDIA GPU, and this PyTorch finds none"),
        (
            no_length,
            FileNotFoundError,
            "{folder}/new has no model.64.neuron.pt, which pad_to of settings.json asks for",
        ),
        (no_package, ModuleNotFoundError, NO_PACKAGE),
        (other_rows, RuntimeError, "the compiled graph was given 2 rows and answered {{'logits': 1}}"),
    ],
)
def test_an_engine_that_cannot_run_raises_a_sentence(
    use: Callable[[Path, Path, pytest.MonkeyPatch], None],
    error: type[Exception],
    message: str,
    compiled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(error, match=f"^{re.escape(message.format(folder=tmp_path))}$"):
        use(tmp_path, compiled, monkeypatch)
