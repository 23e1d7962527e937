"""The generator as a child process: started with a plan, read while it runs, stopped in good order.

Leaving the `with` early, also by Ctrl-C, ends the run as a signal does: the measurements are kept and `outcome()`
returns them. A generator whose parent was killed ends at its next window.
"""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from inference_recommender.load_generator.load_plan import LoadPlan
from workloads import ROOT

COMMAND = (sys.executable, "-m", "inference_recommender.load_generator")
GRACE_S, LOG_TAIL = 120.0, 600
"""Seconds between SIGTERM and SIGKILL, and characters of the log that a crash shows."""
OnEvent = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    folder: Path
    exit_code: int
    """0, 2 (plan or payloads), 3 (target failed, or no AWS), 4 (invalid); another after a crash or an early stop."""
    reason: str
    summary: Mapping[str, Any] | None
    """The content of summary.json; None where the run did not get so far."""

    @classmethod
    def of(cls, folder: Path, exit_code: int, reason: str) -> Self:
        """Reads the summary in a generator's folder, if there is one."""
        file = folder / "summary.json"
        summary = json.loads(file.read_text("utf-8")) if file.exists() else None
        return cls(folder=folder, exit_code=exit_code, reason=reason, summary=summary)

    @property
    def records(self) -> Path:
        """The file with every request, records.npz. It exists wherever `exit_code` is 0 or 4."""
        return self.folder / "records.npz"


class GeneratorProcess:
    def __init__(self, plan: LoadPlan, folder: Path, command: Sequence[str] = COMMAND) -> None:
        """Writes `plan` to `folder`/plan.json and starts the generator on it. `folder`, its --out, is created."""
        self._folder = folder
        self._reason: str | None = None
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "summary.json").unlink(missing_ok=True)
        plan.write_json(folder / "plan.json")
        with (folder / "generator.log").open("w") as log:
            self._process = subprocess.Popen(
                [*command, folder.resolve() / "plan.json", "--out", folder.resolve()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                start_new_session=True,  # Ctrl-C reaches this process, which passes it on
            )

    def run(self, on_event: OnEvent) -> Outcome:
        """Waits for the generator's end. On Ctrl-C or an error of `on_event`, stops the generator and raises."""
        with self:
            for event in self.events():
                on_event(event)
        return self.outcome()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yields the events started, window…, finished, until the generator has ended."""
        assert self._process.stdout is not None, "started with a pipe"
        for line in self._process.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == "finished":
                self._reason = event["reason"]
            yield event
        self._process.wait()

    def request_stop(self) -> None:
        """Sends SIGTERM, and SIGKILL after `GRACE_S`. Returns at once."""
        if self._process.poll() is None:
            self._process.terminate()
            force = threading.Timer(GRACE_S, self._process.kill)
            force.daemon = True
            force.start()

    def stop(self) -> None:
        """Requests the stop, and returns when the generator has ended. May be called twice."""
        self.request_stop()
        try:
            list(self.events())  # with a full pipe the generator could not continue
        except BaseException:  # Ctrl-C a second time
            self._process.kill()
            raise

    def outcome(self) -> Outcome:
        """Waits for the generator's end and returns what it measured."""
        list(self.events())
        exit_code = self._process.wait()
        return Outcome.of(self._folder, exit_code, self._reason or self._why_it_ended(exit_code))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _why_it_ended(self, exit_code: int) -> str:
        log = (self._folder / "generator.log").read_text("utf-8", "replace").strip()
        if exit_code in (2, 3):  # it refused, and its log is the sentence
            return log
        if exit_code == -signal.SIGTERM:
            return "stopped before the load began"
        return f"The load generator ended with exit status {exit_code}: {log[-LOG_TAIL:] or 'its log is empty'}"


def generate(plan: LoadPlan, folder: Path, on_event: OnEvent = lambda event: None) -> Outcome:
    """Runs `plan` to its end in a child process. On Ctrl-C or an error of `on_event`, stops the child and raises."""
    return GeneratorProcess(plan, folder).run(on_event)
