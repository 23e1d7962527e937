"""scripts/walk.py with stand-ins for the commands that it runs: what it shows, and how it ends."""

import io
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from scripts import walk
from scripts.walk import Walk, duration
from tests.builders import a_candidate, a_recommendation, an_artifact
from workloads import ROOT, Autoscaling, LatencyObjective, file_sha256

ACCOUNT = """
class LocalAccount:
    environment = {"AWS_ENDPOINT_URL": "http://localhost:1"}
    endpoint_url = "http://localhost:1"
    @classmethod
    def start(cls, *, state, pace):
        return cls()
    def __enter__(self):
        return self
    def __exit__(self, *error):
        print("the account has ended")
"""

STAND_IN = Path(__file__).with_name("walk_command.txt")


@dataclass(frozen=True)
class Stage:
    """A folder with the walk and stand-ins for `python`, `cdk` and the account."""

    folder: Path

    def start(self) -> "subprocess.Popen[str]":
        environment = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "PYTHONPATH": f"{self.folder}"}
        return subprocess.Popen(
            [sys.executable, "-m", "scripts.walk"],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def take(self) -> tuple[int, str]:
        """Returns the walk's exit code and what it showed."""
        process = self.start()
        stdout, _ = process.communicate(timeout=120)
        return process.returncode, stdout

    def answers(self, *codes: tuple[str, int | str]) -> None:
        """The exit code of each command that contains a text; the first that fits counts."""
        (self.folder / "answers.json").write_text(json.dumps([*codes, ("", 0)]))

    def answers_once(self, *codes: tuple[str, int]) -> None:
        """Sets the exit code of the first command that contains a text; all others end with 0."""
        self.answers(*codes)
        (self.folder / "once").touch()

    @property
    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().splitlines()

    @property
    def log(self) -> str:
        return (self.folder / "build" / "walk.log").read_text()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__", "re*"))
    shutil.copytree(ROOT / "workloads", tmp_path / "workloads", ignore=shutil.ignore_patterns("checkpoint", "__pyc*"))
    account = tmp_path / "local_aws" / "process" / "local_account.py"
    account.parent.mkdir(parents=True)
    account.write_text(ACCOUNT)
    for name in ("python", "cdk"):
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!{sys.executable}\n{STAND_IN.read_text()}")
        file.chmod(0o755)
    artifact = tmp_path / "build" / "spellcheck" / "cpu" / "artifact.json"
    artifact.parent.mkdir(parents=True)
    archive = artifact.with_name("model.tar.gz")
    archive.touch()
    an_artifact(archive_bytes=7_100_000, archive_sha256=file_sha256(archive)).write_json(artifact)
    scaling = Autoscaling(min_capacity=1, max_capacity=5, target_invocations_per_instance=10_000.0)
    objective = LatencyObjective(percentile="P99", model_latency_ms=200.0, peak_invocations_per_minute=60_000)
    recommendation = a_recommendation(a_candidate(4, 20_000.0, autoscaling=scaling), objective=objective)
    recommendation.write_json(tmp_path / "workloads" / "spellcheck" / "recommendation.json")
    stage.answers()
    return stage


LINES = Path(__file__).with_name("walk_output.txt").read_text("utf-8").splitlines()


def test_each_step_prints_result_time_and_commands(stage: Stage) -> None:
    code, printed = stage.take()
    assert code == 0, printed
    steps, _, after = printed.partition("\nthe account has ended\n")
    assert re.sub(r" +\d+ s$", "", steps, flags=re.M).splitlines() == LINES
    assert len(re.findall(r" \d+ s$", steps, re.M)) == 6
    assert max(map(len, [line for line in steps.splitlines() if line[0].isdigit()])) <= 80
    assert "spellcheck: P99 ≤ 200 ms at 60,000 invocations/min" in after
    assert "Report: runs/job-1/report.html" in after
    assert "  python -m inference_recommender simulate spellcheck --trace flash-sale\n" in after
    assert "  python -m inference_recommender prove spellcheck\n" in after
    assert "chatter" not in printed
    assert "chatter of cdk bootstrap" in stage.log
    assert "CREATE_IN_PROGRESS" in stage.log
    assert "boots for teenagers" in stage.log
    assert len(stage.asked) == 6


def test_a_command_that_fails_ends_the_walk_with_its_code_and_the_end_of_the_log(stage: Stage) -> None:
    stage.answers(("deploy", 3))
    code, printed = stage.take()
    assert code == 3
    assert re.search(r"^3 Deploy one instance +failed +\d+ s$", printed, re.M)
    assert "chatter of cdk deploy SpellcheckStack" in printed
    assert "never --ci -c recommendation=ignore` failed with exit code 3. Its output: build/walk.log" in printed
    assert "4 Run" not in printed
    assert "the account has ended" in printed


@pytest.mark.parametrize("outcome", [1, 4])
def test_a_job_without_a_recommendation_is_repeated_once(stage: Stage, outcome: int) -> None:
    stage.answers_once(("--traffic quick", outcome))
    code, printed = stage.take()
    assert code == 0
    assert re.search(r"^4 Run an advanced job +no recommendation +\d+ s$", printed, re.M)
    assert re.search(r"^5 Run the job again +20,000/min within P99 ≤ 200 ms +\d+ s$", printed, re.M)
    assert "7 Invoke the endpoint" in printed


@pytest.mark.parametrize(
    ("outcome", "said"),
    [(1, "spellcheck: P99 ≤ 200 ms at 60,000 invocations/min"), (4, "No verdict: the machine was busy.")],
)
def test_two_jobs_without_a_recommendation_end_the_walk_with_their_code_and_sentence(
    stage: Stage, outcome: int, said: str
) -> None:
    stage.answers(("--traffic", outcome))
    code, printed = stage.take()
    assert code == outcome
    assert f"{said}\nStop other work on this machine, then run `make run` again.\n" in printed
    assert sum("--traffic" in asked for asked in stage.asked) == 2
    assert sum("deploy" in asked for asked in stage.asked) == 1


def test_a_job_that_fails_ends_the_walk_with_its_code(stage: Stage) -> None:
    stage.answers(("--traffic", 3))
    assert stage.take()[0] == 3


def test_ctrl_c_ends_the_command_and_the_account(stage: Stage) -> None:
    stage.answers(("deploy", "wait"))
    process, log = stage.start(), stage.folder / "build" / "walk.log"
    while process.poll() is None and not (log.exists() and "chatter of cdk deploy" in log.read_text()):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    printed = process.communicate(timeout=120)[0]
    assert process.returncode == 130
    assert re.search(r"^3 Deploy one instance +interrupted", printed, re.M)
    assert "the account has ended" in printed
    assert "Interrupted. The account and all its processes have ended." in printed


@pytest.mark.parametrize(("terminal", "often"), [(True, 1), (False, 2)])
def test_a_long_step_shows_its_time_and_the_latest_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, often: int
) -> None:
    monkeypatch.setattr(walk, "LOG", tmp_path / "walk.log")
    monkeypatch.setattr(walk, "PROGRESS_S", 0.4)
    printed = io.StringIO()
    with walk.LOG.open("w", encoding="utf-8") as log:
        walk_ = Walk(Console(file=printed, force_terminal=terminal, width=100), log)
        with walk_.step("Wait") as step:
            walk_.run("bash -c 'echo halfway; sleep 1'")
            step.result = "waited"
    assert printed.getvalue().count("halfway") >= often
    assert re.search(r"1 Wait +halfway +\d+ s" if terminal else r"  1 Wait, \d+ s: halfway\n", printed.getvalue())
    assert re.search(r"1 Wait +waited +1 s\n", printed.getvalue())


def test_durations_are_short_and_exact() -> None:
    assert [duration(seconds) for seconds in (0.4, 59.4, 59.9, 131)] == ["0 s", "59 s", "1:00 min", "2:11 min"]
