"""A NeuronCore whose outputs differ from the original's does not serve."""

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

from containers.container_errors import Unavailable
from containers.encoder.engines.engine import Engine, Lanes
from containers.encoder.engines.load_engine import load as load_engine
from containers.encoder.goldens import GOLDENS, PARITY, Deviation, ParityLimits, check, load, refusal
from containers.neuron.placement import variables
from tests.builders import failure_of, message_of
from tests.containers.neuron.neuron_server import COMPILED, compile_neuron

REPLACE = (
    "Replace this machine if others serve the same archive. Otherwise build the model again, if necessary with a finer "
    "cast."
)
DIFFERS = "the outputs of its NeuronCores differ from the original's:"


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


@pytest.mark.parametrize(
    ("error", "figures"),
    [
        (0.25, "{row} on 8 tokens, logits: difference 0.25 (parity.max_logit_difference 0.0001)"),
        (math.nan, "{row} on 8 tokens, logits: some numbers are infinite or NaN"),
    ],
)
def test_a_core_with_other_outputs_is_refused_with_figures(folder: Path, error: float, figures: str) -> None:
    row = f"row {load(folder)[0][0].row} of evaluation.jsonl"
    wrong, message = Wrong(load_engine(folder, COMPILED), error), f"{DIFFERS} {figures.format(row=row)}. {REPLACE}"
    assert failure_of(Unavailable, check, wrong, COMPILED, folder) == (message, 3)


def test_a_wrong_core_on_a_chip_with_fewer_cores_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four cores of one chip and two of another, and more golden rows than they take at once."""
    engine = load_engine(folder, COMPILED)
    given(monkeypatch, range(6))
    many = shutil.copytree(folder, tmp_path / "model")
    (many / GOLDENS).write_text(json.dumps(24 * json.loads((many / GOLDENS).read_text())))
    lanes = Lanes([engine, Wrong(engine, 0.25, copy=2, copies=2)], rows=4 * COMPILED.batch_size)
    with pytest.raises(Unavailable, match=r"original's: copy 6 of 6, "):
        check(lanes, COMPILED, many)


def test_an_archive_without_golden_rows_is_not_served_unchecked(folder: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(folder, tmp_path / "model", ignore=shutil.ignore_patterns(PARITY))
    assert message_of(Unavailable, check, load_engine(bare, COMPILED), COMPILED, bare) == (
        f"{bare}: goldens.json and parity.json, which a NeuronCore is compared with before it serves, cannot be read "
        f"(FileNotFoundError: [Errno 2] No such file or directory: '{bare / PARITY}'). Build the model again."
    )


def test_a_length_without_a_golden_row_is_not_served_unchecked(folder: Path) -> None:
    longer = replace(COMPILED, pad_to=(8, 16, 32, 64))
    assert message_of(Unavailable, check, load_engine(folder, COMPILED), longer, folder) == (
        f"{folder}: goldens.json has no row for 64 tokens. Build the model again."
    )


def deviation(largest: float, *, moved: bool = False, count: int = 4) -> Deviation:
    return Deviation(copy=1, where="row", largest=largest, total=largest, count=count, moved=moved)


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ((None, None, 0.5), ""),
        ((0.5, 0.1, 0.5), ""),
        ((0.3, None, 0.5), "row: difference 0.4 (parity.max_logit_difference 0.3)"),
        ((None, 0.05, 0.5), "mean difference 0.075 (parity.max_mean_logit_difference 0.05); worst row, 0.4"),
        (
            (None, None, 0.01),
            "row: another number is the largest, difference 0.4; so in 1 of 2 outputs (parity.max_metric_drop 0.01)",
        ),
    ],
)
def test_each_limit_of_the_targets_parity_applies(
    limits: tuple[float | None, float | None, float], problem: str
) -> None:
    assert refusal([deviation(0.2), deviation(0.4, moved=True)], ParityLimits(*limits)) == problem
