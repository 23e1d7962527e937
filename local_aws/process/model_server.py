"""A running server of a model with our proxy before it, as an endpoint's container answers: `/ping`, `/invocations`.

How a server is started is in `triton` and `neuron`; what is the same for both is here. It does not know endpoints,
archives or jobs.
"""

import contextlib
import http.client
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from local_aws.process.guarded_process import GuardedProcess
from workloads import Unavailable

START_TIMEOUT_S = 120.0
DEATH_TOLD_S = 5.0
"""Seconds within which the guard of a server that died has cleaned up and told so."""
GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL."""
_NOISE = "NODELAY NOT SUPPORTED"
"""Triton's HTTP library says so of every connection to its socket."""


class ModelDidNotLoad(Unavailable):
    """The server ended before its model was ready."""


class ModelServer:
    """A running server. A context manager: leaving it stops the server."""

    KIND = ""
    """The server's name in messages."""

    def __init__(self, process: GuardedProcess, repository: Path, url: str, pid: int, log_file: Path) -> None:
        self._process = process
        self.repository = repository
        """The folder that has the model."""
        self.sagemaker_url = url
        """The URL before `/ping` and `/invocations`. It holds a key: whoever knows it is answered."""
        self.pid = pid
        """The process id of the server itself; what it starts are its children."""
        self.log_file = log_file
        self.preparations: tuple[tuple[float, str], ...] = ()
        """The steps before the server was started: Unix seconds and words for each."""

    @property
    def exit_status(self) -> int | None:
        return self._process.exit_status

    def exit_status_if_silent(self) -> int | None:
        """Returns the exit status of a server that does not answer. Its guard tells of a death a moment after it."""
        if not _pings(self.sagemaker_url):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(DEATH_TOLD_S)
        return self.exit_status

    def alive(self) -> bool:
        return self._process.exit_status is None

    def wait(self) -> int:
        """Blocks until it ends and returns the exit status; 128 + N for signal N."""
        return self._process.wait()

    def log_tail(self, lines: int = 20) -> str:
        with contextlib.suppress(OSError):
            said = self.log_file.read_text("utf-8", "replace").splitlines()
            return "\n".join([line for line in said if _NOISE not in line][-lines:])
        return ""

    def request_stop(self) -> None:
        """Asks it to end and returns at once; `stop` must still follow."""
        self._process.request_stop()

    def stop(self) -> None:
        """Sends SIGTERM, and after a grace period SIGKILL to the whole group. May be called twice."""
        self._process.stop()

    def wait_until_ready(self, model: str, timeout_s: float) -> None:
        """Returns when `/ping` says 200.

        Raises `Unavailable` where the server ends before or takes too long; it may still run then.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if (status := self.exit_status) is not None:
                raise ModelDidNotLoad(
                    f"{self.KIND} could not load the model '{model}' and ended with exit status {status}. "
                    f"Its whole log is {self.log_file}.{self._last_lines()}"
                )
            if _pings(self.sagemaker_url):
                return
            time.sleep(0.05)
        raise Unavailable(
            f"{self.KIND} was not ready with the model '{model}' after {timeout_s:g} s and was stopped. "
            f"Its whole log is {self.log_file}.{self._last_lines()}"
        )

    def _last_lines(self) -> str:
        tail = self.log_tail()
        return f" Its last lines:\n{tail}" if tail else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def launch(
    command: Sequence[str], kind: str, log_file: Path, remove: Sequence[str], grace_s: float = GRACE_S
) -> tuple[GuardedProcess, Mapping[str, int]]:
    """Starts a server by a command of `serve_model.plan_command`, and returns what that told: `port` and `pid`.

    `remove` are patterns of files that the guard removes in the end. Raises `Unavailable`.
    """
    log_file.parent.mkdir(parents=True, exist_ok=True)
    log_file.unlink(missing_ok=True)
    log_file.touch(mode=0o600)
    with log_file.open("ab") as log:  # appends: the guard and the proxy write to it, too
        process = GuardedProcess.start(
            command,
            environment={"PATH": "/usr/local/bin:/usr/bin:/bin"},
            stdout=subprocess.PIPE,
            stderr=log,
            grace_s=grace_s,
            remove=remove,
        )
    with process.stdout as told:
        line = told.readline()
    if not line:
        process.stop()
        last = log_file.read_text("utf-8", "replace").splitlines()[-1:]
        raise Unavailable(f"{kind} could not be started: {' '.join(last)}. The whole log is {log_file}.")
    return process, json.loads(line)


def _pings(url: str) -> bool:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.netloc, timeout=5)
    try:
        connection.request("GET", f"{address.path}/ping")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
