"""The generator as a child process: started with a plan, listened to, stopped in good order, and read.

    with GeneratorProcess.start(plan, folder) as generator:
        for event in generator.events():
            ...
    outcome = generator.outcome()

Leaving the `with` early, by Ctrl-C or any other exception too, ends the run as a signal does: requests under way
return, what was measured is kept, and `outcome()` tells it. A generator whose parent was killed ends at its next
window.
Everything here blocks; several threads may each have a generator, and `request_stop` may be called from another thread.
"""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from inference_recommender.load_generator.plan import LoadPlan
from workloads import ROOT

COMMAND = (sys.executable, "-m", "inference_recommender.load_generator")
GRACE_S = 20.0
"""Longer than draining and writing take."""
LOG_TAIL = 600


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    folder: Path
    exit_code: int
    """0, 2 (plan or payloads), 3 (target failed, or no AWS), 4 (invalid); else `reason` tells: crash or early stop."""
    reason: str
    summary: Mapping[str, Any] | None
    """summary.json; None where the run came to none."""

    @property
    def records(self) -> Path:
        """records.npz: every request. There whenever `summary` is."""
        return self.folder / "records.npz"


class GeneratorProcess:
    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._reason: str | None = None

    @classmethod
    def start(cls, plan: LoadPlan, folder: Path) -> Self:
        """Write `plan` to `folder`/plan.json and start on it. `folder` is made; it is the generator's --out."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "summary.json").unlink(missing_ok=True)
        plan.write_json(folder / "plan.json")
        with (folder / "generator.log").open("w") as log:
            process = subprocess.Popen(
                [*COMMAND, folder.resolve() / "plan.json", "--out", folder.resolve()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                start_new_session=True,  # Ctrl-C is for us to pass on
            )
        return cls(process, folder)

    def events(self) -> Iterator[dict[str, Any]]:
        """started, window…, finished; ends when the generator has ended."""
        for line in self._stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == "finished":
                self._reason = event["reason"]
            yield event
        self._process.wait()

    def request_stop(self) -> None:
        """Ask it to end in good order, and return at once."""
        if self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> None:
        """End it in good order; with force when it does not. Stopping twice, or what has ended, is fine."""
        self.request_stop()
        force = threading.Timer(GRACE_S, self._process.kill)
        force.start()
        try:
            self._listen_to_the_end()
        except BaseException:  # Ctrl-C once more
            self._process.kill()
            raise
        finally:
            force.cancel()

    def outcome(self) -> Outcome:
        """What it came to; waits for its end."""
        self._listen_to_the_end()
        summary_file = self._folder / "summary.json"
        summary = json.loads(summary_file.read_text("utf-8")) if summary_file.exists() else None
        exit_code = self._process.wait()
        reason = self._reason if self._reason is not None else self._why_it_ended(exit_code)
        return Outcome(folder=self._folder, exit_code=exit_code, reason=reason, summary=summary)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _listen_to_the_end(self) -> None:
        """It could not write on if nobody read, and its last event has the reason."""
        for _ in self.events():
            pass

    def _why_it_ended(self, exit_code: int) -> str:
        log = (self._folder / "generator.log").read_text("utf-8", "replace").strip()
        if exit_code in (2, 3):  # refused in a sentence of its own
            return log
        if exit_code == -signal.SIGTERM:
            return "stopped before the load began"
        return f"The load generator ended with exit status {exit_code}: {log[-LOG_TAIL:] or 'it said nothing'}"

    @property
    def _stdout(self) -> IO[str]:
        assert self._process.stdout is not None, "started with a pipe"
        return self._process.stdout


def generate(
    plan: LoadPlan, folder: Path, on_event: Callable[[Mapping[str, Any]], None] = lambda event: None
) -> Outcome:
    """Run `plan` to its end in a child process; on Ctrl-C, or an error of `on_event`, stop the child and raise."""
    with GeneratorProcess.start(plan, folder) as generator:
        for event in generator.events():
            on_event(event)
    return generator.outcome()
