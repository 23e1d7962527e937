"""The harness: engines in processes of their own, ratios within rounds. Goals: verdicts, their table, the exit code."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import goals, harness, run
from benchmarks.goals import Goal
from benchmarks.harness import Absent, Checked, Comparison, EngineEnded, EngineProcess, Turn, in_turn

PROGRAM = """
import sys
from benchmarks.harness import answer_turns

def load():
    print("output of a library")
    if sys.argv[2] == "ours without it":
        return lambda call: None
    return lambda call: [call, "wrong" if sys.argv[2] == "ours wrong" else "right"] if call != "the last" else exit()

if sys.argv[1:3] == ["--make", "ours broken"]:
    exit(1)
elif sys.argv[1] == "--serve":
    answer_turns(load)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(harness, "TURN_S", 0.0)
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


def engine(program: Path, name: str = "ours") -> EngineProcess:
    return EngineProcess(program, name, threads=1, python=Path(sys.executable))


def test_an_engine_answers_and_takes_turns_despite_output_of_libraries(program: Path) -> None:
    with engine(program) as ours:
        assert ours.answer(["a call", "another"]) == [["a call", "right"], ["another", "right"]]
        assert len(in_turn(["ours"], lambda name: ours.turn(["a call"]), rounds=2)["ours"]) == 2


def test_an_engine_that_ends_or_hangs_is_an_error(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(program) as ours, pytest.raises(EngineEnded, match="ended"):
        ours.answer(["the last"])
    monkeypatch.setattr(harness, "PEER_LIMIT_S", 0)
    with engine(program) as ours, pytest.raises(EngineEnded, match="no answer in 0 s"):
        ours.answer(["a call"])


def test_engines_that_are_not_installed_not_built_or_wrong_have_no_turns(
    program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harness, "ROOT", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(harness, "environment", lambda threads: None)
    names = (harness.BASELINE, "ours", "ours broken", "ours wrong", "ours without it", "ctranslate2 fp32")

    def check(case: str, answers: object) -> dict[str, Checked]:
        assert isinstance(answers, dict)
        return {name: Checked(rows[0][1], right=rows[0][1] == "right") for name, rows in answers.items()}

    [compared] = harness.compare(program, "a model", names, {"a case": ["a call"]}, check, rounds=1, threads=1)
    assert list(compared.turns) == [harness.BASELINE, "ours"]
    assert [line.rstrip() for line in capfd.readouterr().out.splitlines()[3:7]] == [
        f"{'ours broken':40}  not built",
        f"{'ctranslate2 fp32':40}  not installed",
        f"{'ours without it':40}  does not offer this",
        f"{'ours wrong':40}  wrong answers: wrong",
    ]


def turns(*ms: float) -> list[Turn]:
    return [Turn(each, each / 10, each, each) for each in ms]


COMPARED = Comparison(
    title="a model, 16 rows",
    turns={harness.BASELINE: turns(40, 90, 400), "ours": turns(20, 100, 100), "peer": turns(30, 50, 110)},
    absent={"absent": Absent("not installed"), "ours broken": Absent("not built", failed=True)},
    answers={"ours": Checked("off by 0.1")},
)


def test_a_speed_up_is_the_median_of_the_rounds_ratios() -> None:
    assert COMPARED.table().splitlines() == [
        "a model, 16 rows                                ms      ×    CPU ms      ×    P99 ms",
        "huggingface fp32                                90      1         9      1        90",
        "ours                                           100      2        10      2       100  off by 0.1",
        "peer                                            50    1.8         5    1.8        50",
        "absent                                    not installed",
        "ours broken                               not built",
    ]


@pytest.mark.parametrize(
    ("pair", "goal"),
    [
        (("ours", "huggingface fp32", 2.0), Goal(cell="ours over huggingface fp32", limit=2, figure=2, note="CPU 2")),
        (("ours", "absent", 1.0), Goal(cell="ours over absent", limit=1, note="absent: not installed")),
        (
            ("ours broken", "peer", 1.0),
            Goal(cell="ours broken over peer", limit=1, note="ours broken: not built", failed=True),
        ),
        (("ours", "of another case", 1.0), None),
    ],
)
def test_a_pair_of_engines_has_a_goal_unless_the_case_does_not_offer_it(
    pair: tuple[str, str, float], goal: Goal | None
) -> None:
    expected = [] if goal is None else [replace(goal, cell=f"a model, 16 rows: {goal.cell}")]
    assert list(harness.pair_goals(COMPARED, [pair])) == expected


MET, MISSED = Goal(cell="fast", limit=2, figure=2.04), Goal(cell="small", limit=8, figure=9, at_most=True)
NOT_RUN = Goal(cell="beside a peer", limit=1, note="a peer: not installed")
FAILED = Goal(cell="int8", limit=1, note="ours int8: not built", failed=True)


@pytest.mark.parametrize(
    ("judged", "code"),
    [([MET], 0), ([MET, NOT_RUN], 4), ([MET, NOT_RUN, MISSED], 1), ([FAILED], 1), ([], 0)],
)
def test_a_missed_goal_is_exit_code_1_and_one_that_is_not_run_is_4(
    judged: list[Goal], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert goals.finish("a", ("pytest", "absent"), {}, judged) == code
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [Goal.of(each) for each in document["goals"]] == judged
    assert document["versions"] == {"pytest": pytest.__version__, "absent": None}


def test_the_table_has_figure_limit_and_verdict_of_each_goal() -> None:
    assert goals.table([MET, MISSED, NOT_RUN, FAILED]).splitlines() == [
        "goal             figure  limit    verdict",
        "fast               2.04  ≥ 2      met",
        "small                 9  ≤ 8      missed",
        "beside a peer         -  ≥ 1      not run  a peer: not installed",
        "int8                  -  ≥ 1      missed   ours int8: not built",
    ]


def test_one_command_prints_the_goals_of_all_benchmarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.dumps({"goals": [MET.document()]})
    (tmp_path / "first.py").write_text(f"import sys; print('its table', sys.argv[1:]); print({document!r})")
    (tmp_path / "second.py").write_text("print('no goals'); exit(3)")
    monkeypatch.setattr(run, "__file__", str(tmp_path / "run.py"))
    monkeypatch.setattr(run, "SMALLEST", {"first": "--rounds 1", "second": ""})
    assert run.main(["--smallest"]) == 4
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "# python benchmarks/first.py --rounds 1",
        "its table ['--rounds', '1']",
        "",
        "# python benchmarks/second.py",
        "no goals",
        "",
        "goal           figure  limit    verdict",
        "first: fast      2.04  ≥ 2      met",
        "second              -  ≥ 1      not run  ended with 3 and without goals",
    ]
