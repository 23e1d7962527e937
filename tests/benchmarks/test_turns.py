"""Engines that take turns: ratios are of one round, and an engine is a process of its own."""

import sys
from pathlib import Path

import pytest

from benchmarks.turns import Engine, Turn, in_turn, summary, table

PROGRAM = """
from benchmarks.turns import answer_turns

def load():
    print("a library's chatter")
    return lambda case: [case, "{name}"] if case != "the last" else exit()

answer_turns(load)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.replace("{name}", "said"))
    return file


def engine(program: Path, name: str = "ours") -> Engine:
    return Engine(program, name, threads=1, python=Path(sys.executable))


def test_an_engine_answers_and_takes_turns_whatever_its_libraries_print(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.turns.TURN_S", 0.0)
    with engine(program) as ours:
        assert ours.answer("a case") == ["a case", "said"]
        assert len(in_turn([ours], "a case", rounds=2)["ours"]) == 2


def test_an_engine_that_ends_is_told_of_by_its_name(program: Path) -> None:
    with engine(program) as ours, pytest.raises(SystemExit) as ended:
        ours.answer("the last")
    assert str(ended.value) == "The process of ours ended; what it said is above."


def test_a_speed_up_is_the_median_of_rounds_and_not_a_ratio_of_medians() -> None:
    turns = {
        "eager": [Turn(40, 4), Turn(90, 9), Turn(400, 10)],
        "ours": [Turn(20, 1), Turn(100, 3), Turn(100, 5)],
        "peer": [Turn(30, 2), Turn(50, 3), Turn(110, 5)],
    }
    found = summary(turns, "eager", (("ours", "eager", 2.0), ("ours", "peer", 1.2), ("ours", "absent", 1.0)))
    assert table("a model, 16 rows", found).splitlines() == [
        "a model, 16 rows                        ms      ×    CPU ms      ×",
        "eager                                90.00   1.00      9.00   1.00",
        "ours                                100.00   2.00      3.00   3.00",
        "peer                                 50.00   1.80      3.00   2.00",
        "met     ours ≥ 2 × eager: 2.00, of CPU 3.00",
        "NOT met ours ≥ 1.2 × peer: 1.10, of CPU 1.00",
    ]
