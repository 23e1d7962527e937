"""`make run`: build spellcheck, deploy it, measure it, deploy what was measured, ask and prove it, on this machine.

Shows each command as a reader would type it, its result and how long it took; what else the commands print goes to
build/walk.log. A job without a verdict is repeated once with longer traffic. The proof is a short one, and whatever it
says of a machine that may have other work is told, and fails nothing. Exit code: that of the command that failed, 4
where neither job came to a verdict, 70 unforeseen, 130 after Ctrl-C.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from local_aws.process.local_account import LocalAccount
from workloads import ROOT, Interrupted, NoVerdict, ProjectError
from workloads.program import exit_code

LOG = ROOT / "build" / "walk.log"
TAIL_LINES = 25
"""Lines of the log that are shown where a command fails."""
STATE = ROOT / "build" / "walk"
"""The account's folder. An account that the user runs has another, and may run at the same time."""

DEPLOY = "cdk deploy SpellcheckStack --require-approval never --ci"
MEASURE = "python -m inference_recommender run spellcheck --job advanced --traffic"
PROVE = "python -m inference_recommender prove spellcheck --max-duration-s 60"
NO_CANDIDATE = 1
"""Exit code of a run in which nothing kept the objective: a machine with other work to do may be too slow for it."""
PROVEN = {
    1: "So this machine, as busy as it is now, does not bear what was recommended: measure and prove it where little "
    "else runs.",
    4: "Half a minute for each load was too little here: without --max-duration-s a proof may take 15 minutes.",
}
"""Words on a proof that is not kept, by its exit code."""
QUERIES = (
    "waterproof hiking boots for teengaers",
    "adjustablescratching post for puppies",
    "ergonomic webcam for travelles",
    "running shoes for women",
)

EVERY_LINE = re.compile("")
CDK_RESULT = re.compile(r"✅|❌")
"""The lines in which the CDK CLI says how it ended. All else that it prints is progress, and a stack's outputs."""


class Walk:
    """Runs commands one after another, and shows them and their results."""

    def __init__(self, console: Console, log: IO[str]) -> None:
        self._console = console
        self._log = log
        self._environment: Mapping[str, str] = os.environ

    def say(self, text: str, style: str = "") -> None:
        self._console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def step(self, title: str) -> None:
        self.say(f"\n{title}", style="bold")

    def start_account(self) -> LocalAccount:
        """Starts an account for the commands that follow; the caller stops it."""
        began = self._begin(f"python -m local_aws --port 0 --state {shown(STATE)} &")
        account = LocalAccount.start(state=STATE)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self._environment = {**inherited, **account.environment}
        self.say(f"AWS_ENDPOINT_URL={account.endpoint_url} for all that follows")
        self._end(began)
        return account

    def run(self, command: str, results: re.Pattern[str] = EVERY_LINE) -> None:
        """Shows the lines that are results. Ends the walk with the command's exit code and the end of the log if the
        command fails.
        """
        began = self._begin(command)
        process = self._start(command, stdout=subprocess.PIPE, stderr=self._log)
        with self._waiting() as progress:
            task = progress.add_task("", total=None)
            for line in output(process):
                self._log.write(line + "\n")
                progress.update(task, description=line[:70])
                if results.search(line):
                    self.say(line)
            code = ended(process)
        if code:
            self._fail(code)
        self._end(began)

    def measure(self, traffic: str) -> bool:
        """Returns whether a job came to a recommendation."""
        return self._in_full_view(f"{MEASURE} {traffic}", allowed=(0, NO_CANDIDATE, NoVerdict.exit_code)) == 0

    def prove(self) -> None:
        """Proves the recommendation, and says what a proof means that is not kept."""
        code = self._in_full_view(PROVE, allowed=(0, *PROVEN))
        if code:
            self.say(PROVEN[code])

    def _in_full_view(self, command: str, allowed: tuple[int, ...]) -> int:
        """Runs a command that shows its own progress; returns its exit code, or ends the walk with another."""
        began = self._begin(command)
        code = ended(self._start(command, stdout=None, stderr=None))
        if code not in allowed:
            raise SystemExit(code)
        self._end(began)
        return code

    def _begin(self, command: str) -> float:
        self.say(f"$ {command}", style="dim")
        print(f"$ {command}", file=self._log, flush=True)
        return time.monotonic()

    def _end(self, began: float) -> None:
        self.say(f"({duration(time.monotonic() - began)})", style="dim")

    def _fail(self, code: int) -> None:
        self._log.flush()
        self.say("\n".join(LOG.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:]))
        self.say(f"\nThe command failed with exit code {code}. All that was printed: {shown(LOG)}")
        raise SystemExit(code)

    def _start(self, command: str, **streams: Any) -> "subprocess.Popen[str]":
        self._log.flush()
        # In a process group of its own: Ctrl-C reaches the walk alone, which passes it on once.
        return subprocess.Popen(
            shlex.split(command),
            cwd=ROOT,
            env=self._environment,
            process_group=0,
            text=True,
            errors="replace",
            **streams,
        )

    def _waiting(self) -> Progress:
        """A line with the time and the command's latest output, on a terminal."""
        columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", style="dim", markup=False))
        return Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    LOG.parent.mkdir(exist_ok=True)
    began = time.monotonic()
    with LOG.open("w", encoding="utf-8") as log:
        walk = Walk(Console(), log)
        try:
            measured = take(walk)
        except ProjectError as error:
            walk.say(f"\n{error}")
            return error.exit_code
        except KeyboardInterrupt:
            walk.say("\nInterrupted: the account has ended, and nothing is left running.")
            return Interrupted.exit_code
        if not measured:
            return NoVerdict.exit_code
        walk.step(f"Done in {duration(time.monotonic() - began)}.")
        walk.say(f"The report, for a browser: {shown(latest_run())}/report.html\nAll that was printed: {shown(LOG)}")
    return 0


def take(walk: Walk) -> bool:
    """Takes every step. Returns False, without the second deploy, where no job came to a verdict."""
    walk.step("1. Build: checkpoint to a verified Triton archive")
    walk.run("python -m model_build build spellcheck --target cpu")
    walk.step("2. An AWS account on this machine")
    with walk.start_account():
        # A recommendation of an earlier walk may belong to another artifact, which synthesis would refuse.
        walk.run("cdk bootstrap --ci -c recommendation=ignore", CDK_RESULT)
        walk.step("3. Deploy: one instance, until there is a recommendation")
        walk.run(f"{DEPLOY} -c recommendation=ignore", CDK_RESULT)
        walk.step("4. Measure: an advanced Inference Recommender job of about a minute")
        if not walk.measure("quick") and not again(walk):
            return False
        walk.step("5. Deploy again, with the recommendation's numbers")
        walk.run(DEPLOY, CDK_RESULT)
        walk.step("6. Ask the endpoint")
        walk.run(shlex.join(["python", "-m", "inference_recommender", "invoke", "spellcheck", *QUERIES]))
        walk.step("7. Prove: open arrivals, as one instance of the recommended fleet would get them")
        walk.prove()
    return True


def again(walk: Walk) -> bool:
    walk.say("This machine was too busy for a verdict. Once more, with traffic of three minutes:")
    if walk.measure("longer"):
        return True
    walk.say(f"\nStill no verdict, so nothing more is deployed. What the last job saw, in {shown(latest_run())}:")
    for line in seen(latest_run()):
        walk.say(f"  {line}")
    walk.say("Stop what else keeps this machine's cores busy, then run `make run` again.")
    return False


def seen(run: Path) -> Iterator[str]:
    """Yields a line for each tested configuration: the point of its highest rate."""
    for measurement in json.loads((run / "measurements.json").read_text("utf-8")):
        series = measurement["series"] or {"invocations": []}
        counts = [count or 0 for count in series["invocations"]]
        if not counts:
            yield f"{measurement['instance_type']}: nothing was measured"
            continue
        most = max(range(len(counts)), key=counts.__getitem__)
        rate = counts[most] * 60 / series["period_s"]
        p99_ms = series["latency_ms"].get("p99", [None] * len(counts))[most]
        latency = "" if p99_ms is None else f", p99 {p99_ms:.1f} ms"
        yield f"{measurement['instance_type']}: at most {rate:,.0f} invocations/min{latency}"


def latest_run() -> Path:
    """Returns the folder of the last measurement; a proof has another, and no report of its own."""
    measured = (file.parent for file in (ROOT / "runs").glob("*/measurements.json"))
    return max(measured, key=lambda folder: folder.stat().st_mtime)


def output(process: "subprocess.Popen[str]") -> Iterator[str]:
    """Yields the lines of a process's standard output. Ctrl-C ends the process first."""
    assert process.stdout is not None
    try:
        for line in process.stdout:
            yield line.rstrip("\n")
    except KeyboardInterrupt:
        interrupt(process)
        raise


def ended(process: "subprocess.Popen[str]") -> int:
    """Returns the exit code once the process has ended. Ctrl-C ends the process first."""
    try:
        return process.wait()
    except KeyboardInterrupt:
        interrupt(process)
        raise


def interrupt(process: "subprocess.Popen[str]") -> None:
    """Passes Ctrl-C on and waits; a second one kills."""
    try:
        os.killpg(process.pid, signal.SIGINT)
        process.wait()
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(exit_code(main))
