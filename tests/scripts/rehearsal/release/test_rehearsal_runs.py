"""Concurrent actions of a rehearsal: their results, failures and denied calls."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from threading import Barrier
from typing import Any, cast

import pytest

from scripts.rehearsal.release.codebuild import BuildFailed
from scripts.rehearsal.release.execution import ExecutionState, Outcome, Runner, concurrent_groups
from scripts.rehearsal.release.permissions import CallLog
from scripts.rehearsal.release.pipeline_template import Action
from scripts.rehearsal.release.rehearsal import Rehearsal, failed_outcome
from tests.scripts.rehearsal.release.templates import build, commands, pipeline, project, source

NAMES = ("A", "B", "C", "D", "Measure-A", "Measure-B")
PIPELINE = pipeline(
    {
        "Source": [source("Files")],
        "Build": [
            *(build(name, 1, ["Files"], [f"{name}_Output"]) for name in ("A", "B", "C")),
            build("D", 2, ["A_Output"]),
            *(build(name, 3, ["Files"]) for name in ("Measure-A", "Measure-B")),
        ],
    },
    **{name: project(commands("true")) for name in NAMES},
)


class FakeRunner:
    """Succeeds with an action's outputs, or fails with the given message."""

    def __init__(self, failing: Mapping[str, str], at_once: int = 1) -> None:
        self.pipeline, self.running = PIPELINE, set[Any]()
        self._failing = failing
        self._all_there = Barrier(at_once)

    def run(self, action: Action, state: ExecutionState) -> tuple[ExecutionState, Outcome]:
        self._all_there.wait(60)
        if action.name in self._failing:
            return state, Outcome(action=action, log=(), failure=BuildFailed("BUILD", self._failing[action.name]))
        made = ExecutionState(commit=state.commit, artifacts=dict.fromkeys(action.outputs, "a key"))
        return made, Outcome(action=action, log=(), failure=None)


def rehearsed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, runner: FakeRunner, *names: str
) -> tuple[ExecutionState, list[Outcome], list[str]]:
    lines: list[str] = []
    nothing = cast(Any, None)
    log, calls = io.StringIO(), CallLog(folder / "calls.jsonl")
    rehearsal = Rehearsal(folder, nothing, nothing, nothing, lines.append, log, calls)
    monkeypatch.setattr(Rehearsal, "runner", lambda self: cast(Runner, runner))
    state, outcomes = rehearsal.run(
        [f"Build/{name}" for name in names], ExecutionState(commit="c", artifacts={"Files": "first"})
    )
    return state, outcomes, lines


def test_builds_of_one_run_order_run_concurrently_unless_they_measure() -> None:
    groups = [[action.name for action in group] for group in concurrent_groups(PIPELINE.actions)]
    assert groups == [["Files"], ["A", "B", "C"], ["D"], ["Measure-A"], ["Measure-B"]]


def test_after_a_failure_the_concurrent_actions_finish_and_no_other_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, outcomes, lines = rehearsed(
        tmp_path, monkeypatch, FakeRunner({"A": "one reason"}, at_once=3), "A", "B", "C", "D"
    )
    assert lines == ["Build/A: FAILED: BUILD: one reason", "Build/B: succeeded", "Build/C: succeeded"]
    assert failed_outcome(outcomes) is outcomes[0]
    assert state.artifacts == {"Files": "first", "B_Output": "a key", "C_Output": "a key"}


@pytest.mark.parametrize(("failing", "denied"), [({}, "A"), ({"B": "exit status 3"}, "B")])
def test_a_denied_call_fails_the_action_that_failed_or_else_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: Mapping[str, str], denied: str
) -> None:
    call = {"role": "arn:aws:iam::1:role/Step", "action": "s3:PutObject", "resource": "here", "allowed": False}
    (tmp_path / "calls.jsonl").write_text(json.dumps(call) + "\n")
    _, outcomes, _ = rehearsed(tmp_path, monkeypatch, FakeRunner(failing, at_once=2), "A", "B")
    failed = failed_outcome(outcomes)
    assert failed is not None
    assert failed.action.name == denied
    assert str(failed.failure) == "Build/A, Build/B: arn:aws:iam::1:role/Step may not s3:PutObject on here."
