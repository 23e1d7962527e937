"""Which actions a rehearsal runs at once, what they hand on together, and which of them a denial is laid to."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from threading import Barrier
from typing import Any, cast

import pytest

from scripts.rehearsal.release.calls import CallsLog
from scripts.rehearsal.release.codebuild import BuildFailed, Shells
from scripts.rehearsal.release.execution import Kept, Outcome, Runner, together
from scripts.rehearsal.release.pipeline_template import Action
from scripts.rehearsal.release.rehearsal import Rehearsal, failure_of
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


class StandIn:
    """Runs an action by handing on its outputs, or by failing with what is given for it."""

    def __init__(self, failing: Mapping[str, str], at_once: int = 1) -> None:
        self.pipeline, self.shells = PIPELINE, Shells()
        self._failing = failing
        self._all_there = Barrier(at_once)

    def run(self, action: Action, kept: Kept) -> tuple[Kept, Outcome]:
        self._all_there.wait(60)
        if action.name in self._failing:
            return kept, Outcome(action=action, log=(), failure=BuildFailed("BUILD", self._failing[action.name]))
        made = Kept(commit=kept.commit, artifacts=dict.fromkeys(action.outputs, "a key"))
        return made, Outcome(action=action, log=(), failure=None)


def rehearsed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, runner: StandIn, *names: str
) -> tuple[Kept, list[Outcome], list[str]]:
    said: list[str] = []
    nothing = cast(Any, None)
    log, calls = io.StringIO(), CallsLog(folder / "calls.jsonl")
    rehearsal = Rehearsal(folder, nothing, nothing, nothing, said.append, log, calls)
    monkeypatch.setattr(Rehearsal, "runner", lambda self: cast(Runner, runner))
    kept, outcomes = rehearsal.run([f"Build/{name}" for name in names], Kept(commit="c", artifacts={"Files": "first"}))
    return kept, outcomes, said


def test_builds_of_one_run_order_are_together_and_all_else_is_alone() -> None:
    groups = [[action.name for action in group] for group in together(PIPELINE.actions)]
    assert groups == [["Files"], ["A", "B", "C"], ["D"], ["Measure-A"], ["Measure-B"]]


def test_actions_that_are_together_run_at_once_and_hand_on_what_each_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, _, said = rehearsed(tmp_path, monkeypatch, StandIn({}, at_once=3), "A", "B", "C")
    assert said == ["Build/A: succeeded", "Build/B: succeeded", "Build/C: succeeded"]
    assert kept.artifacts == {"Files": "first", "A_Output": "a key", "B_Output": "a key", "C_Output": "a key"}


def test_those_beside_one_that_fails_come_to_their_end_and_none_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, outcomes, said = rehearsed(tmp_path, monkeypatch, StandIn({"A": "one reason"}, at_once=3), "A", "B", "C", "D")
    assert said == ["Build/A: FAILED: BUILD: one reason", "Build/B: succeeded", "Build/C: succeeded"]
    assert failure_of(outcomes) is outcomes[0]


@pytest.mark.parametrize(("failing", "laid_to"), [({}, "A"), ({"B": "exit status 3"}, "B")])
def test_a_denial_is_laid_to_the_action_that_failed_or_else_to_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: Mapping[str, str], laid_to: str
) -> None:
    call = {"role": "arn:aws:iam::1:role/Step", "action": "s3:PutObject", "resource": "here", "allowed": False}
    (tmp_path / "calls.jsonl").write_text(json.dumps(call) + "\n")
    _, outcomes, _ = rehearsed(tmp_path, monkeypatch, StandIn(failing, at_once=2), "A", "B")
    failed = failure_of(outcomes)
    assert failed is not None
    assert failed.action.name == laid_to
    assert str(failed.failure) == "Build/A, Build/B: arn:aws:iam::1:role/Step may not s3:PutObject on here."
