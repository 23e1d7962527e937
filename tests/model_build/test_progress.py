"""A long build is seen to go on in a log, a short one says nothing there."""

from pathlib import Path

import pytest

import model_build.__main__ as command_line
from model_build.progress import seldom


def test_a_step_is_reported_if_the_last_one_is_long_ago() -> None:
    told, seconds = list[str](), iter([0.0, 5.0, 29.9, 30.0, 31.0, 59.9, 75.0])
    progress = seldom(told.append, 30.0, lambda: next(seconds))
    for step in ("loading", "compiling", "asking, 0", "asking, 32", "asking, 64", "asking, 96"):
        progress(step)
    assert told == ["asking, 0", "asking, 96"]


@pytest.mark.parametrize(("every_s", "says"), [(0.0, True), (600.0, False)])
def test_a_log_has_the_steps_of_a_long_build(
    every_s: float, says: bool, tiny_copy: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "ROOT", tiny_copy)
    monkeypatch.setattr(command_line, "LOG_INTERVAL_S", every_s)
    assert command_line.main(["build", "tiny", "--target", "cpu"]) == 0
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("tiny for cpu: ")]
    assert ("tiny for cpu: Packing" in lines) is says
    assert bool(lines) is says
