"""`make run`: build spellcheck, deploy it, run a job, deploy the recommendation and invoke the endpoint, all locally.

Prints one line for each step, with its result and time, and below it the commands. Other output goes to build/walk.log.
A job without a recommendation is repeated once. Exit code: that of the command that failed, 70 for an internal error,
130 after Ctrl-C.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

from rich.console import Console
from rich.text import Text

from local_aws.process.local_account import LocalAccount
from workloads import ROOT, Interrupted, NoVerdict, ProjectError, Recommendation, load_artifact, load_workload
from workloads.program import exit_code

LOG = ROOT / "build" / "walk.log"
TAIL_LINES = 15
STATE = ROOT / "build" / "walk"
"""The account's folder, apart from that of an account that the user runs."""
POLL_S = 0.1
PROGRESS_S = 30.0
"""Seconds between two progress lines without a terminal."""

BUILD = "python -m model_build build spellcheck --target cpu"
# With an environment named, the CDK synthesises nothing.
BOOTSTRAP = "cdk bootstrap aws://123456789012/us-east-1 --ci"
DEPLOY = "cdk deploy SpellcheckStack --require-approval never --ci"
# An earlier walk's recommendation may be for another archive.
DEPLOY_ONE = f"{DEPLOY} -c recommendation=ignore"
JOB = "python -m inference_recommender run spellcheck --job advanced --traffic quick"
INVOKE = "python -m inference_recommender invoke spellcheck 'waterproof hiking boots for teengaers'"
NO_CANDIDATE = 1
"""Exit code of a job in which no candidate meets the objective."""
BUSY = "Stop other work on this machine, then run `make run` again."
NEXT = """Next, after `source .venv/bin/activate && export PATH="$PWD/node_modules/.bin:$PATH"`:
  python -m inference_recommender simulate spellcheck --trace flash-sale
  python -m inference_recommender prove spellcheck
The walk's account has ended, and `prove` needs an endpoint. Start `python -m local_aws` in another terminal, then run
`source .local_aws/exports && cdk bootstrap && cdk deploy SpellcheckStack`."""


class CommandFailed(Exception):
    def __init__(self, command: str, code: int) -> None:
        self.code = code
        super().__init__(f"`{command}` failed with exit code {code}.")


@dataclass
class Step:
    """A step of the walk: its title, result and commands."""

    title: str
    result: str = ""
    commands: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def line(self, result: str) -> str:
        return f"{self.title:<29}{result:<43}{duration(time.monotonic() - self.began):>8}"


class Walk:
    """Runs the commands of the steps and prints the steps' results."""

    def __init__(self, console: Console, log: IO[str]) -> None:
        self._console = console
        self._log = log
        self._steps: list[Step] = []
        self._environment: Mapping[str, str] = os.environ

    def say(self, text: str, style: str = "") -> None:
        self._console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Prints the step's line and its commands at the end of the block."""
        step = Step(f"{len(self._steps) + 1} {title}")
        self._steps.append(step)
        try:
            yield step
        except BaseException as error:
            step.result = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            raise
        finally:
            self.say(step.line(step.result))
            for command in dict.fromkeys(step.commands):
                self.say(f"  $ {command}", style="dim")

    def start_account(self) -> LocalAccount:
        """Starts an account for the commands that follow. The caller stops it."""
        self._steps[-1].commands.append("python -m local_aws --pace quick")
        account = LocalAccount.start(state=STATE, pace="quick")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self._environment = {**inherited, **account.environment}
        return account

    def run(self, command: str, allowed: tuple[int, ...] = (0,)) -> "subprocess.CompletedProcess[str]":
        """Returns the result, whose stderr is the last line. Raises `CommandFailed` for a code that is not allowed."""
        self._steps[-1].commands.append(command)
        print(f"$ {command}", file=self._log, flush=True)
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stdout:
            code = self._wait(command, stdout if command in {JOB, INVOKE} else self._log)
            last_line = last_log_line()
            stdout.seek(0)
            printed = stdout.read()
        self._log.write(printed)
        self._log.flush()
        if code not in allowed:
            raise CommandFailed(command, code)
        return subprocess.CompletedProcess(command, code, printed, last_line)

    def _wait(self, command: str, stdout: IO[str]) -> int:
        """Runs the command and shows the log's last line meanwhile."""
        step, printed = self._steps[-1], time.monotonic()
        # A process group of its own: only the walk receives Ctrl-C, and passes it on once.
        process = subprocess.Popen(
            shlex.split(command),
            cwd=ROOT,
            env=self._environment,
            process_group=0,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=self._log,
        )
        try:
            with self._console.status(step.title) as status:
                while process.poll() is None:
                    if self._console.is_terminal:
                        status.update(Text(step.line(last_log_line()[:42]), style="dim"))
                    elif time.monotonic() - printed >= PROGRESS_S:
                        printed = time.monotonic()
                        self.say(f"  {step.title}, {duration(printed - step.began)}: {last_log_line()}")
                    time.sleep(POLL_S)
        except KeyboardInterrupt:
            interrupt(process)
            raise
        return int(process.returncode)


def main() -> int:
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("w", encoding="utf-8") as log:
        walk = Walk(Console(), log)
        try:
            return take(walk)
        except CommandFailed as error:
            walk.say("\n".join(["", *LOG.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:]]))
            walk.say(f"\n{error} Its output: {LOG.relative_to(ROOT)}")
            return error.code
        except ProjectError as error:
            walk.say(f"\n{error}")
            return error.exit_code
        except KeyboardInterrupt:
            walk.say("\nInterrupted. The account and all its processes have ended.")
            return Interrupted.exit_code


def take(walk: Walk) -> int:
    """Takes every step. Returns the job's exit code if the job has no recommendation."""
    began = time.monotonic()
    with walk.step("Build spellcheck for CPU") as step:
        walk.run(BUILD)
        artifact = load_artifact(ROOT, "spellcheck", "cpu")
        assert artifact.parity is not None
        answers = f"{artifact.parity.identical_answers} of {artifact.parity.examples} answers identical"
        step.result = f"{artifact.archive_bytes / 1e6:.2f} MB, {answers}"
    with walk.step("Start a local AWS account") as step:
        account = walk.start_account()
        step.result = account.endpoint_url
    with account:
        with walk.step("Deploy one instance") as step:
            walk.run(BOOTSTRAP)
            walk.run(DEPLOY_ONE)
            step.result = "SpellcheckStack"
        job = run_job(walk)
        if job.returncode:
            walk.say(f"\n{job.stdout.rstrip() or job.stderr}\n{BUSY}")
            return job.returncode
        with walk.step("Deploy the recommendation") as step:
            walk.run(DEPLOY)
            step.result = fleet(recommendation())
        with walk.step("Invoke the endpoint") as step:
            step.result = walk.run(INVOKE).stdout.rpartition(" -> ")[2].strip()
    report = f"{recommendation().provenance.run}/report.html"
    walk.say(f"\n{job.stdout.rstrip()}\n\nDone in {duration(time.monotonic() - began)}. Report: {report}")
    walk.say(f"All output of the commands: {LOG.relative_to(ROOT)}\n\n{NEXT}")
    return 0


def run_job(walk: Walk) -> "subprocess.CompletedProcess[str]":
    """Runs the job, and once more if it has no recommendation."""
    for title in ("Run an advanced job", "Run the job again"):
        with walk.step(title) as step:
            job = walk.run(JOB, (0, NO_CANDIDATE, NoVerdict.exit_code))
            step.result = "no recommendation" if job.returncode else capacity(recommendation())
        if not job.returncode:
            break
    return job


def recommendation() -> Recommendation:
    document = load_workload("spellcheck").recommendation()
    assert document is not None, "the job wrote no recommendation"
    return document


def capacity(document: Recommendation) -> str:
    assert document.recommended is not None
    rate, limit = document.recommended.max_invocations_per_minute or 0.0, document.objective
    return f"{rate:,.0f}/min within {limit.percentile} ≤ {limit.model_latency_ms:g} ms"


def fleet(document: Recommendation) -> str:
    candidate = document.recommended
    assert candidate is not None
    scaling = candidate.autoscaling
    limits = f", {scaling.min_capacity} to {scaling.max_capacity}" if scaling else ""
    return f"{candidate.instance_count} × {candidate.instance_type}{limits}"


def last_log_line() -> str:
    """Returns the last line of the log, from its last 4 KiB."""
    with LOG.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
        lines = log.read().decode("utf-8", "replace").splitlines()
    return next((line for line in reversed(lines) if line.strip()), "")


def interrupt(process: "subprocess.Popen[bytes]") -> None:
    """Passes Ctrl-C on and waits. A second Ctrl-C kills the process."""
    try:
        os.killpg(process.pid, signal.SIGINT)
        process.wait()
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02} min" if minutes else f"{rest} s"


if __name__ == "__main__":
    sys.exit(exit_code(main))
