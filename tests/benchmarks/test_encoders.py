"""The goals of encoders: our best engine over the best other one, in each class of precision."""

import re
import sys
from pathlib import Path

import pytest

from benchmarks import encoders
from benchmarks.harness import BASELINE, Absent, Checked, Comparison, Turn
from tests.benchmarks import small_encoders

FIGURES = {
    BASELINE: 9.0,
    "openvino fp32": 6.0,
    "ctranslate2 int8": 4.0,
    "openvino bf16": 3.0,
    "ours fp32": 3.0,
    "ours int8": 2.0,
}


def compared(**absent: Absent) -> Comparison:
    turns = {name: [Turn(ms, ms, ms, ms)] for name, ms in FIGURES.items() if name not in absent}
    return Comparison(title="bert, 1 rows", turns=turns, absent=absent)


def test_our_best_is_compared_with_the_best_other_of_the_same_class() -> None:
    *cells, mean = encoders.judge([compared()])
    assert [(cell.figure, cell.verdict, cell.note) for cell in cells] == [
        (2.0, "met", "ours fp32 over openvino fp32, CPU 2"),
        (1.5, "met", "ours int8 over openvino bf16, CPU 1.5"),
    ]
    assert (mean.limit, mean.verdict) == (1.3, "met")


def test_a_cell_is_not_run_while_a_peer_is_not_installed_nor_is_the_geometric_mean() -> None:
    cells = encoders.judge([compared(**{"openvino bf16": Absent("not installed")})])
    assert [cell.verdict for cell in cells] == ["met", "not run", "not run"]


def test_a_peer_that_fails_leaves_the_cell_and_our_failure_misses_it() -> None:
    failures = {"openvino bf16": Absent("not built", failed=True), "ours fp32": Absent("ended", failed=True)}
    cells = list(encoders.judge([compared(**failures)]))
    assert [(cell.verdict, cell.figure) for cell in cells[:2]] == [("missed", None), ("met", 2.0)]


def test_logits_are_compared_within_the_tolerance_of_the_precision() -> None:
    answers = {BASELINE: [[[0.0, 1.0]]], "ours fp32": [[[0.0, 1.01]]], "ours int8": [[[0.0, 1.01]]]}
    checked = encoders._check("bert", "1 rows", {**answers, "ctranslate2 int8": [[[9.0]]]})
    assert list(checked.items())[1:] == [
        ("ours fp32", Checked("off by 0.01", right=False)),
        ("ours int8", Checked("off by 0.01")),
    ]


@pytest.mark.slow
def test_a_small_family_runs_beside_hugging_face(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(encoders, "PROGRAM", Path(small_encoders.__file__))
    names = ("huggingface fp32", "huggingface bf16", *(name for name in encoders.ENGINES if name.startswith("ours")))
    monkeypatch.setattr(encoders, "ENGINES", {name: encoders.ENGINES[name] for name in names})
    monkeypatch.setattr(sys, "argv", ["encoders.py", "--rounds", "1", "--group", small_encoders.FAMILY])
    assert encoders.main() in (0, 1)
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith(f"{small_encoders.FAMILY}, ")]
    cells = [line for line in lines if ", fp32: our best over the best other" in line]
    assert len(cells) == len(encoders.ROWS)
    assert all(re.search("ours (openvino )?fp32 over huggingface fp32", cell) for cell in cells)
