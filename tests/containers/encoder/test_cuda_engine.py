"""The encoders' engine of CUDA graphs answers as plain TorchScript does, at every size of batch. `cuda` needs a GPU."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from containers.encoder import load_engine
from containers.encoder.cuda_engine import CudaEngine, Program
from containers.encoder.settings import Settings
from containers.encoder.tensors import Encoding, tensors
from containers.encoder.torchscript_engine import TorchScriptEngine
from model_build.encoder.export import TRACED, trace
from model_build.torch_threads import threads_kept
from tests.containers.encoder.encoder_miniature import SETTINGS
from tests.containers.text2text.test_static_engines import Recorder, needs_gpu
from tests.model_build.tensorrt.tensorrt_graphs import BERTS, VOCABULARY, bert

BATCHES = [(1, 3), (3, 9), (4, 9), (3, 5), (1, 3), (7, 17), (8, 24)]
"""Rows and length of each; the fifth has the size of the first."""
KINDS = {"text-classification": "classification", "text-pair-scoring": "scoring", "question-answering": "answering"}


@pytest.fixture(scope="module", params=list(KINDS))
def settings(request: pytest.FixtureRequest) -> Settings:
    return SETTINGS[request.param]


@pytest.fixture(scope="module")
def traced(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model.pt, the trace of a BERT that takes the inputs of these settings."""
    folder = tmp_path_factory.mktemp("traced")
    model = BERTS[KINDS[settings.task]]
    assert (tuple(model.inputs), settings.task) == (settings.inputs, model.task)
    trace(bert(model), folder)
    return folder / TRACED


def batch(settings: Settings, rows: int, length: int) -> dict[str, NDArray[Any]]:
    """Real tokens and padding on the right: the first row alone is `length` long."""
    rng = np.random.default_rng(rows * 100 + length)
    encodings = [
        Encoding(tuple(rng.integers(1, VOCABULARY, size).tolist()), (0,) * size)
        for size in [length, *rng.integers(1, length + 1, rows - 1).tolist()]
    ]
    return dict(tensors(encodings, settings.inputs, (), settings.pad_token_id))


def differences(settings: Settings, traced: Path, engine: CudaEngine) -> list[float]:
    found = []
    with threads_kept():
        plain = TorchScriptEngine(traced, settings)
        for size in BATCHES:
            asked = batch(settings, *size)
            wanted, given = plain.run(asked), engine.run(asked)
            assert {name: output.shape for name, output in given.items()} == {
                name: output.shape for name, output in wanted.items()
            }
            found += [float(np.abs(given[name] - wanted[name]).max()) for name in wanted]
    return found


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=needs_gpu)])
def test_every_batch_is_answered_as_by_the_model_itself(settings: Settings, traced: Path, device: str) -> None:
    assert max(differences(settings, traced, CudaEngine(traced, settings, device))) < 1e-5


def recorded(program: Program, work: Callable[[], None]) -> Callable[[], None]:
    recorder = Recorder()
    with recorder:
        work()
    return recorder.replay


def test_what_is_captured_once_at_a_size_answers_every_batch_of_it(
    settings: Settings, traced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Program, "_captured", recorded)
    assert max(differences(settings, traced, CudaEngine(traced, settings, "cpu"))) < 1e-5


def test_an_answer_is_not_the_memory_of_the_next_one(settings: Settings, traced: Path) -> None:
    engine = CudaEngine(traced, settings, "cpu")
    first = engine.run(batch(settings, 2, 9))
    kept = {name: output.copy() for name, output in first.items()}
    engine.run({name: values[::-1].copy() for name, values in batch(settings, 2, 9).items()})
    assert all(np.array_equal(first[name], kept[name]) for name in kept)


def test_nothing_of_a_trace_stays_on_the_cpu_it_was_made_on(settings: Settings, traced: Path) -> None:
    """On the device `meta` nothing is computed, and an operand of another device is refused as a GPU refuses it."""
    jit: Any = torch.jit
    graph = jit.load(str(traced), map_location="meta")
    asked = [torch.from_numpy(values).to("meta") for values in batch(settings, 3, 9).values()]
    with torch.inference_mode(), jit.optimized_execution(False):
        made = graph(*asked)
    assert all(output.device.type == "meta" for output in (made if isinstance(made, tuple) else (made,)))


def test_without_a_gpu_one_sentence_says_so(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    file = tmp_path / load_engine.CUDA_GRAPHS
    file.touch()
    said = f"{file} runs on an NVIDIA GPU, and this PyTorch finds none"
    with pytest.raises(RuntimeError, match=f"^{re.escape(said)}$"):
        load_engine.load(tmp_path, settings)
