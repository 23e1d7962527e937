"""A NeuronCore that does not compute what the original does is found before it serves, and the figures are said."""

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from containers.batch.predictor import BatchPredictor
from containers.encoder.engine import Engine, Lanes
from containers.encoder.goldens import GOLDENS, PARITY, Deviation, Limits, check, load, refusal
from containers.encoder.load_engine import load as load_engine
from containers.encoder.tensors import Encoding
from containers.errors import Unavailable
from containers.neuron.cores import variables
from model_build.neuron.goldens import choose
from tests.containers.encoder.encoder_miniature import Graph
from tests.containers.neuron.neuron_server import COMPILED, compile_neuron

REPLACE = (
    "Replace this machine where others serve the same archive; otherwise build the model again, with a finer cast if "
    "need be."
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Graphs of the fake, which is installed as torch_neuron as long as this module's tests run."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield compile_neuron(tmp_path_factory.mktemp("compiled") / "model", monkeypatch)


class Wrong:
    """Adds `error` to the first number of the rows of 8 tokens on one copy of the model, of which each takes two."""

    def __init__(self, engine: Engine, error: float, copy: int = 1, copies: int = 1) -> None:
        self._engine, self._error, self._copy, self._copies = engine, error, copy, copies

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        outputs = {name: output.copy() for name, output in self._engine.run(tensors).items()}
        rows, length = np.arange(len(tensors["input_ids"])), tensors["input_ids"].shape[1]
        outputs["logits"][rows // 2 % self._copies == self._copy - 1, 0] += self._error if length == 8 else 0.0
        return outputs


def given(monkeypatch: pytest.MonkeyPatch, cores: range) -> None:
    """Sets what the launcher tells a worker of a data-parallel model."""
    for name, value in variables(cores, "data-parallel").items():
        monkeypatch.setenv(name, value)


def test_a_core_that_computes_what_the_original_does_may_serve(folder: Path) -> None:
    check(load_engine(folder, COMPILED), COMPILED, folder)


def test_so_may_all_the_cores_that_a_batch_is_split_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, range(4, 7))
    check(load_engine(folder, COMPILED), COMPILED, folder)


@pytest.mark.parametrize(
    ("error", "figures"),
    [
        (0.25, "{row} on 8 tokens, logits: 0.25 off, at most 0.0001 is allowed (parity.max_logit_difference)"),
        (math.nan, "{row} on 8 tokens, logits: some numbers are infinite or none at all (NaN)"),
    ],
)
def test_a_core_that_does_not_is_refused_with_the_row_the_output_the_difference_and_the_limit(
    folder: Path, error: float, figures: str
) -> None:
    with pytest.raises(Unavailable) as caught:
        check(Wrong(load_engine(folder, COMPILED), error), COMPILED, folder)
    row = f"row {load(folder)[0][0].row} of evaluation.jsonl"
    wanted = f"on its NeuronCores it does not compute what the original does: {figures.format(row=row)}. {REPLACE}"
    assert (str(caught.value), caught.value.exit_code) == (wanted, 3)


def test_one_wrong_core_among_many_is_found_and_told_apart(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, range(16))
    with pytest.raises(Unavailable, match=r"original does: copy 11 of 16, row \d of evaluation.jsonl on 8 tokens"):
        check(Wrong(load_engine(folder, COMPILED), 0.25, copy=11, copies=16), COMPILED, folder)


def test_the_core_is_told_where_the_last_chip_has_fewer(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four cores of one chip and two of another, and more golden rows than they take at once."""
    engine = load_engine(folder, COMPILED)
    given(monkeypatch, range(6))
    many = shutil.copytree(folder, tmp_path / "model")
    (many / GOLDENS).write_text(json.dumps(24 * json.loads((many / GOLDENS).read_text())))
    lanes = Lanes([engine, Wrong(engine, 0.25, copy=2, copies=2)], rows=4 * COMPILED.batch_size)
    with pytest.raises(Unavailable, match=r"original does: copy 6 of 6, "):
        check(lanes, COMPILED, many)


def test_the_batch_program_refuses_such_a_model_too(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "1")
    wrong = shutil.copytree(folder, tmp_path / "model")
    [first, *others] = json.loads((wrong / GOLDENS).read_text())
    (wrong / GOLDENS).write_text(json.dumps([{**first, "outputs": {"logits": [9.0, 0.0, 0.0]}}, *others]))
    BatchPredictor.load(folder)
    with pytest.raises(Unavailable, match="on its NeuronCores it does not compute what the original does: row"):
        BatchPredictor.load(wrong)


@pytest.mark.parametrize("missing", [GOLDENS, PARITY])
def test_an_archive_without_golden_rows_is_not_served_unchecked(folder: Path, tmp_path: Path, missing: str) -> None:
    bare = shutil.copytree(folder, tmp_path / "model", ignore=shutil.ignore_patterns(missing))
    with pytest.raises(Unavailable) as caught:
        check(load_engine(bare, COMPILED), COMPILED, bare)
    assert str(caught.value) == (
        f"{bare}: goldens.json and parity.json, with which a NeuronCore is compared with the original before it "
        f"serves, cannot be read (FileNotFoundError: [Errno 2] No such file or directory: '{bare / missing}'). Build "
        "the model again."
    )


def test_a_length_without_a_golden_row_is_not_served_unchecked(folder: Path) -> None:
    longer = replace(COMPILED, pad_to=(8, 16, 32, 64))
    with pytest.raises(Unavailable) as caught:
        check(load_engine(folder, COMPILED), longer, folder)
    assert str(caught.value) == f"{folder}: goldens.json has no row for 64 tokens. Build the model again."


def test_a_model_for_cpu_was_compared_when_it_was_built(tmp_path: Path) -> None:
    check(None, COMPILED, tmp_path)  # type: ignore[arg-type]


def deviation(largest: float, *, moved: bool = False, count: int = 4) -> Deviation:
    return Deviation(copy=1, where="row", largest=largest, total=largest, count=count, moved=moved)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(None, None, 0.5), ""),
        (Limits(0.5, 0.1, 0.5), ""),
        (Limits(0.3, None, 0.5), "row: 0.4 off, at most 0.3 is allowed (parity.max_logit_difference)"),
        (
            Limits(None, 0.05, 0.5),
            "0.075 off in the mean, at most 0.05 is allowed (parity.max_mean_logit_difference); the worst is row, "
            "0.4 off",
        ),
        (
            Limits(None, None, 0.01),
            "row: another number is the largest, 0.4 off; it is so in 1 of 2 outputs, and in a share of at most 0.01 "
            "it may be (parity.max_metric_drop)",
        ),
    ],
)
def test_each_limit_of_the_targets_parity_is_kept(limits: Limits, said: str) -> None:
    assert refusal([deviation(0.2), deviation(0.4, moved=True)], limits) == said


def test_a_single_number_has_no_place_to_move_to() -> None:
    assert refusal([deviation(0.2), deviation(0.1, count=1)], Limits(None, None, 0.0)) == ""


def test_the_rows_of_which_the_original_is_surest_are_chosen_and_the_longer_ones_cut_where_none_fits() -> None:
    graph = Graph(COMPILED).eval()
    rows = [(number, Encoding((2, *range(4, 4 + number), 3), (0,) * (number + 2))) for number in range(20, 28)]
    chosen = {length: choose(graph, COMPILED, rows, length) for length in (8, 32)}
    assert [len(chosen[length]) for length in (8, 32)] == [4, 4]
    assert {len(golden.token_ids) for golden in chosen[8]} == {8}
    margins = [sorted(golden.outputs["logits"])[-1] - sorted(golden.outputs["logits"])[-2] for golden in chosen[32]]
    assert margins == sorted(margins, reverse=True)
