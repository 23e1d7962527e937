"""The harness: engines in processes of their own, ratios within rounds, goals and exit codes."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.harness import EngineProcess, Turn, in_turn, summary, table

PROGRAM = """
from benchmarks.harness import answer_turns

def load():
    print("output of a library")
    return lambda case: [case, "{name}"] if case != "the last" else exit()

answer_turns(load)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.replace("{name}", "said"))
    return file


def engine(program: Path, name: str = "ours") -> EngineProcess:
    return EngineProcess(program, name, threads=1, python=Path(sys.executable))


def test_an_engine_answers_and_takes_turns_despite_output_of_libraries(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "TURN_S", 0.0)
    with engine(program) as ours:
        assert ours.answer("a case") == ["a case", "said"]
        assert len(in_turn([ours], "a case", rounds=2)["ours"]) == 2


def test_the_error_of_an_ended_engine_names_it(program: Path) -> None:
    with engine(program) as ours, pytest.raises(SystemExit) as ended:
        ours.answer("the last")
    assert str(ended.value) == "The process of ours ended. Its messages are above."


def test_a_speed_up_is_the_median_of_the_rounds_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    turns = {
        "eager": [Turn(40, 4), Turn(90, 9), Turn(400, 10)],
        "ours": [Turn(20, 1), Turn(100, 3), Turn(100, 5)],
        "peer": [Turn(30, 2), Turn(50, 3), Turn(110, 5)],
    }
    result = summary(
        "a model", turns, "eager", (("ours", "eager", 2.0), ("ours", "peer", 1.2), ("ours", "absent", 1.0))
    )
    assert table("a model, 16 rows", result).splitlines() == [
        "a model, 16 rows                        ms      ×    CPU ms      ×",
        "eager                                90.00   1.00      9.00   1.00",
        "ours                                100.00   2.00      3.00   3.00",
        "peer                                 50.00   1.80      3.00   2.00",
    ]
    assert harness.finish("a", (), {}, result["goals"][:1]) == 0
    assert harness.finish("a", ("pytest", "absent"), result, result["goals"]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    document = json.loads(last)
    assert lines[-2:] == [
        "met     a model: ours ≥ 2 × eager: 2, of CPU 3",
        "NOT met a model: ours ≥ 1.2 × peer: 1.1, of CPU 1",
    ]
    assert document["goals"] == result["goals"]
    assert document["versions"] == {"pytest": pytest.__version__, "absent": None}
