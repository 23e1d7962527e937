"""Graphs compiled for Neuron give the model's own answers, whatever the number and the lengths of the rows."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from containers.encoder.engine import Engine, Lanes
from containers.encoder.load_engine import load
from containers.encoder.neuron_engine import CORES, PLACEMENT, NeuronEngine
from containers.encoder.predictor import Predictor
from containers.neuron.worker import warm_up
from tests import fake_neuron
from tests.containers.encoder.encoder_miniature import Graph
from tests.containers.neuron.neuron_server import COMPILED, compile_neuron

ROWS = [1, 2, 3, 7, 8]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Graphs of the fake, which is installed as torch_neuron as long as this module's tests run."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield compile_neuron(tmp_path_factory.mktemp("compiled") / "model", monkeypatch)


def place(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    """Sets what the launcher sets for a process that spreads its batches over its cores."""
    monkeypatch.setenv(PLACEMENT, "data-parallel")
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", f"4-{3 + cores}")
    monkeypatch.setenv(CORES, str(cores))


@pytest.fixture(params=["torch_neuron", "torch_neuronx"])
def spread(folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Engine:
    """Over three NeuronCores of Inf1 and of Inf2; the graphs of both fakes load alike."""
    place(monkeypatch, 3)
    monkeypatch.setitem(sys.modules, request.param, fake_neuron.modules()[request.param])
    return load(folder, COMPILED)


def make_tensors(rows: int, length: int) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    generator = np.random.default_rng(rows * length)
    mask = (np.arange(length) < generator.integers(1, length + 1, (rows, 1))).astype(np.int64)
    tokens = generator.integers(4, 50, (rows, length)) * mask
    return {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros_like(mask)}


def check(engine: Engine, rows: int, length: int) -> None:
    tensors = make_tensors(rows, length)
    with torch.inference_mode():
        [expected] = Graph(COMPILED).eval()(*(torch.from_numpy(tensors[name]) for name in COMPILED.inputs))
    outputs = engine.run(tensors)
    assert list(outputs) == ["logits"]
    np.testing.assert_allclose(outputs["logits"], expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("length", COMPILED.pad_to)
@pytest.mark.parametrize("rows", ROWS)
def test_on_one_core(folder: Path, rows: int, length: int) -> None:
    check(load(folder, COMPILED), rows, length)


@pytest.mark.parametrize("length", COMPILED.pad_to)
@pytest.mark.parametrize("rows", ROWS)
def test_over_all_cores_of_the_process(spread: Engine, rows: int, length: int) -> None:
    check(spread, rows, length)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, int]]]:
    """Records for each batch which core had how many rows."""
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
    spread: Engine, ran: list[list[tuple[int, int]]], rows: int, calls: tuple[int, int]
) -> None:
    """The documentation of both chips asks for it, where dynamic batching is off. Inf1 has four cores on a chip, and
    Inf2 two.
    """
    spread.run(make_tensors(rows, 8))
    assert isinstance(spread, Lanes)
    chips = {1: [[(0, 2), (1, 2), (2, 2)]], 2: [[(0, 2), (1, 2)], [(2, 2)]]}[spread.count]
    assert all(call in chips for call in ran)
    assert len(ran) == calls[spread.count - 1]


def test_each_chip_runs_batches_of_its_own_and_what_says_nothing_runs_on_every_core(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ran: list[list[tuple[int, int]]]
) -> None:
    """Warm-up and probes ask all cores; 10 cores are two chips and a half."""
    place(monkeypatch, 10)
    predictor = Predictor.load(folder)
    assert isinstance(predictor.engine, Lanes)
    assert (predictor.engine.count, predictor.engine.rows) == (3, 4 * COMPILED.batch_size)
    warm_up(predictor)
    cores = [core for call in ran for core, _ in call]
    assert min(cores.count(core) for core in range(10)) == 2 * len(COMPILED.pad_to)


def test_one_core_is_not_spread_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ran: list[list[tuple[int, int]]]
) -> None:
    place(monkeypatch, 1)
    check(load(folder, COMPILED), 5, 8)
    assert ran == []


def test_a_graph_that_answers_another_number_of_rows_is_not_believed() -> None:
    engine = NeuronEngine({8: lambda *tensors: (torch.zeros(1, 3),)}, COMPILED)
    with pytest.raises(RuntimeError) as caught:
        engine.run(make_tensors(2, 8))
    assert str(caught.value) == "the compiled graph was given 2 rows and answered {'logits': 1}"


def test_rows_beyond_one_lane_run_on_the_lanes_in_order_and_come_back_in_order() -> None:
    """The check of golden rows says which copy of the model computed a row by its place in the batch."""

    class Numbered:
        def __init__(self, number: int) -> None:
            self.number = number

        def run(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
            return {"row": tensors["row"], "lane": np.full(len(tensors["row"]), self.number)}

    lanes = Lanes([Numbered(number) for number in range(3)], rows=2)
    lanes.run({"row": np.arange(1)})  # the first lane is now the one that was busy last
    for rows in (2, 3, 6, 11):
        outputs = lanes.run({"row": np.arange(rows)})
        assert outputs["row"].tolist() == list(range(rows))
    outputs = lanes.run({"row": np.arange(11)})
    assert outputs["lane"].tolist() == [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2]


def test_a_predictor_answers_a_row_as_it_would_alone(folder: Path) -> None:
    predictor = Predictor.load(folder)
    rows = [{"text": text} for text in ("a", "red shoes", "a lamp for a desk", "b", "")]
    together = predictor.predict(rows)
    alone = [predictor.predict([row])[0] for row in rows]
    assert [type(answer) for answer in together] == [type(answer) for answer in alone]
    for one, other in zip(together[:4], alone[:4], strict=True):
        assert isinstance(one, dict)
        assert isinstance(other, dict)
        assert one["LABEL"] == other["LABEL"]
        assert one["SCORE"] == pytest.approx(other["SCORE"], abs=1e-5)


def test_a_length_without_its_graph_is_missed_when_loading(folder: Path, tmp_path: Path) -> None:
    incomplete = tmp_path / "model"
    shutil.copytree(folder, incomplete)
    (incomplete / "model.16.neuron.pt").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        load(incomplete, COMPILED)
    assert str(caught.value) == f"{incomplete} has no model.16.neuron.pt, which pad_to of settings.json asks for"


def test_without_neurons_package_the_reason_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch_neuron")
    with pytest.raises(ModuleNotFoundError) as caught:
        load(folder, COMPILED)
    assert str(caught.value) == (
        "the model is compiled for Neuron, and neither torch_neuronx nor torch_neuron is installed"
    )
