"""A child process that ends with us: a command run behind `guard.py`, which explains why a guard is needed."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

GUARD = Path(__file__).with_name("guard.py")


class GuardedProcess:
    """A running command and its guard. `stop()` may be called twice, and returns when every descendant is gone."""

    def __init__(self, guard: "subprocess.Popen[bytes]", pid: int, grace_s: float) -> None:
        self._guard = guard
        self._grace_s = grace_s
        self.pid = pid

    @classmethod
    def start(
        cls,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str],
        stdout: int | IO[bytes],
        stderr: int | IO[bytes],
        working_directory: Path | None = None,
        grace_s: float = 5.0,
        remove: Sequence[str] = (),
    ) -> "GuardedProcess":
        """Starts `command`. When it has ended, the guard removes the files that match the glob patterns of `remove`."""
        read, write = os.pipe()
        # -I -S: the guard needs nothing but the standard library, and starts sooner without `site`.
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", GUARD, str(write), str(grace_s), ":".join(remove), *command],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            env=dict(environment),
            cwd=working_directory,
            pass_fds=(write,),
            start_new_session=True,
        )
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            pid = pipe.read()
        if not pid:
            raise OSError(f"{command[0]} could not be started (its guard ended with {guard.wait()}).")
        return cls(guard, int(pid), grace_s)

    @property
    def stdout(self) -> IO[bytes]:
        assert self._guard.stdout is not None, "started without stdout=PIPE"
        return self._guard.stdout

    @property
    def exit_status(self) -> int | None:
        """Exit status of the command: None while it runs, 128 + N when signal N ended it."""
        return self._guard.poll()

    def wait(self, timeout_s: float | None = None) -> int:
        return self._guard.wait(timeout_s)

    def request_stop(self) -> None:
        """Asks the command to end and returns at once; the guard kills it after the grace period."""
        if self._guard.poll() is None:
            self._guard.terminate()

    def stop(self) -> None:
        self.request_stop()
        try:
            self._guard.wait(self._grace_s + 5)
        except subprocess.TimeoutExpired:
            # Only a guard that is itself stopped gets here; PR_SET_PDEATHSIG still ends the command with it.
            self._guard.kill()
            self._guard.wait()
        if (self._guard.returncode or 0) < 0:
            # A killed guard leaves the command's children; they share the command's process group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        if self._guard.stdin is not None:
            self._guard.stdin.close()
