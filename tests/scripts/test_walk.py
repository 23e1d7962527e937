"""scripts/walk.py with stand-ins for the commands that it runs: what it shows, and how it ends."""

import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.walk import PROVEN, duration, seen
from workloads import ROOT

ACCOUNT = """
class LocalAccount:
    environment = {"AWS_ENDPOINT_URL": "http://localhost:1"}
    endpoint_url = "http://localhost:1"
    @classmethod
    def start(cls, *, state):
        return cls()
    def __enter__(self):
        return self
    def __exit__(self, *error):
        print("the account has ended")
"""
STAND_IN = """
import json, os, sys, time
asked = " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
open("asked", "a").write(asked + "\\n")
end = next(end for piece, end in json.loads(open("answers.json").read()) if piece in asked)
if "cdk" in asked:
    print("Stack | 1/2 | CREATE_IN_PROGRESS")
    print(" ✅  SpellcheckStack")
    print("SpellcheckStack.EndpointName = SpellcheckStack", flush=True)
print("chatter of " + asked, file=sys.stderr)
if end == "wait":
    time.sleep(60)
sys.exit(end)
"""


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
        file.write_text(f"#!{sys.executable}\n{STAND_IN}")
        file.chmod(0o755)
    run = tmp_path / "runs" / "spellcheck-quick-1"
    run.mkdir(parents=True)
    (run / "measurements.json").write_text(json.dumps([measurement()]))
    stage.answers()
    return stage


def measurement() -> dict[str, object]:
    series = {"period_s": 10, "invocations": [100, 300, None], "latency_ms": {"p99": [5.0, 61.04, None]}}
    return {"instance_type": "ml.c5.xlarge", "series": series}


def test_results_are_shown_and_all_else_is_in_the_log(stage: Stage) -> None:
    code, shown = stage.take()
    assert code == 0, shown
    assert [line for line in shown.splitlines() if re.match(r"[1-9]\. ", line)] == [
        "1. Build: checkpoint to a verified Triton archive",
        "2. An AWS account on this machine",
        "3. Deploy: one instance, until there is a recommendation",
        "4. Measure: an advanced Inference Recommender job of about a minute",
        "5. Deploy again, with the recommendation's numbers",
        "6. Ask the endpoint",
        "7. Prove: open arrivals, as one instance of the recommended fleet would get them",
    ]
    assert shown.count("✅  SpellcheckStack") == 3
    assert "EndpointName" not in shown
    assert "CREATE_IN_PROGRESS" not in shown
    assert "chatter" not in shown
    assert "CREATE_IN_PROGRESS" in stage.log
    assert "chatter of cdk bootstrap" in stage.log
    assert "The report, for a browser: runs/spellcheck-quick-1/report.html" in shown
    assert len(re.findall(r"^\(\d+ s\)$", shown, re.M)) == 8, "the time of each command"
    commands = [line for line in shown.splitlines() if line.startswith("$ ") and "local_aws" not in line]
    assert [*commands[:-2], commands[-1]] == [f"$ {asked}" for asked in (*stage.asked[:-2], stage.asked[-1])]
    assert commands[-2].startswith("$ python -m inference_recommender invoke spellcheck 'waterproof hiking boots")
    assert commands[-1] == "$ python -m inference_recommender prove spellcheck --max-duration-s 60"


@pytest.mark.parametrize(("code", "said"), PROVEN.items())
def test_a_proof_that_is_not_kept_is_told_and_fails_nothing(stage: Stage, code: int, said: str) -> None:
    (stage.folder / "runs" / "spellcheck-proof-2").mkdir()
    stage.answers(("prove", code))
    ended, shown = stage.take()
    assert ended == 0
    assert said in shown
    assert "The report, for a browser: runs/spellcheck-quick-1/report.html" in shown


def test_a_proof_that_cannot_be_made_ends_the_walk(stage: Stage) -> None:
    stage.answers(("prove", 3))
    assert stage.take()[0] == 3


def test_a_command_that_fails_ends_the_walk_with_its_code_and_the_end_of_the_log(stage: Stage) -> None:
    stage.answers(("deploy", 1))
    code, shown = stage.take()
    assert code == 1
    assert "chatter of cdk deploy SpellcheckStack" in shown
    assert "The command failed with exit code 1. All that was printed: build/walk.log" in shown
    assert "4. Measure" not in shown
    assert "the account has ended" in shown


@pytest.mark.parametrize("outcome", [1, 4])
def test_a_job_without_a_recommendation_is_repeated_with_longer_traffic(stage: Stage, outcome: int) -> None:
    stage.answers(("--traffic quick", outcome))
    code, shown = stage.take()
    assert code == 0
    assert "This machine was too busy for a verdict. Once more, with traffic of three minutes:" in shown
    assert "5. Deploy again" in shown


def test_without_a_verdict_nothing_more_is_deployed_and_the_rates_are_shown(stage: Stage) -> None:
    stage.answers(("--traffic", 4))
    code, shown = stage.take()
    assert code == 4
    assert [asked.rpartition(" ")[2] for asked in stage.asked if "--traffic" in asked] == ["quick", "longer"]
    assert "ml.c5.xlarge: at most 1,800 invocations/min, p99 61.0 ms" in shown
    assert "Stop what else keeps this machine's cores busy, then run `make run` again." in shown
    assert "5. Deploy again" not in shown
    assert sum("deploy" in asked for asked in stage.asked) == 1


def test_a_job_that_fails_ends_the_walk_with_its_code(stage: Stage) -> None:
    stage.answers(("--traffic", 3))
    assert stage.take()[0] == 3


def test_ctrl_c_ends_the_command_and_the_account(stage: Stage) -> None:
    stage.answers(("deploy", "wait"))
    process = stage.start()
    assert process.stdout is not None
    results = (line for line in process.stdout if "✅" in line)
    next(results)
    next(results)  # the deploy has begun, and goes on
    process.send_signal(signal.SIGINT)
    shown = process.communicate(timeout=120)[0]
    assert process.returncode == 130
    assert "the account has ended" in shown
    assert "Interrupted: the account has ended, and nothing is left running." in shown


def test_a_configuration_that_was_not_measured_is_named(tmp_path: Path) -> None:
    (tmp_path / "measurements.json").write_text(json.dumps([{"instance_type": "ml.c5.xlarge", "series": None}]))
    assert list(seen(tmp_path)) == ["ml.c5.xlarge: nothing was measured"]


def test_durations_are_short_and_exact() -> None:
    assert [duration(seconds) for seconds in (0.4, 59.4, 60, 131)] == ["0 s", "59 s", "1 min 0 s", "2 min 11 s"]
