"""Goals: their verdicts, their table, the exit code, and the one table of all benchmarks."""

import json
from pathlib import Path

import pytest

from benchmarks import goals, run
from benchmarks.goals import Goal

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
