"""A running model server, which answers an endpoint's invocations and health checks."""

import contextlib
import http
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from urllib3 import Timeout
from urllib3.exceptions import HTTPError, NewConnectionError, ReadTimeoutError

from inference_recommender.load_generator.unix_socket import connection_pool
from local_aws.process.guarded_process import GuardedProcess
from workloads import Unavailable

START_TIMEOUT_S = 120.0
INVOCATION_TIMEOUT_S = 60.0
PING_TIMEOUT_S = 2.0
MAX_ANSWER_BYTES = 6_291_456
DEATH_REPORT_S = 5.0
GRACE_S = 5.0
IDLE_CONNECTIONS = 64
LINES_SHOWN = 20
_ERROR = re.compile(r"E\d{4} ")
"""The start of an error in Triton's log."""
_NOISE = "NODELAY NOT SUPPORTED"
"""Triton's HTTP library logs this for each connection to its socket."""


class ModelDidNotLoad(Unavailable):
    """The server ended before its model was ready."""

    def __init__(self, message: str, pid: int, log_file: Path) -> None:
        self.pid = pid
        self.log_file = log_file
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    status: int
    content_type: str
    body: bytes


class ModelServer:
    """A running server. A context manager: leaving it stops the server."""

    KIND = ""

    def __init__(
        self, process: GuardedProcess, repository: Path, url: str, health_paths: Sequence[str], log_file: Path
    ) -> None:
        """The server is ready when it answers 200 to each of `health_paths`."""
        self.repository = repository
        self.invocations_url = url
        self.pid = process.pid
        self.log_file = log_file
        self.preparations: tuple[tuple[float, str], ...] = ()
        """The steps before the server was started: Unix seconds and words for each."""
        self.gpus = 0  # of its instance type
        self.endpoint_config = ""
        self.refuses = False  # connections, by its last invocation
        self._process = process
        self._health_paths = health_paths
        self._pool = connection_pool(url, maxsize=IDLE_CONNECTIONS, retries=False)

    def invoke(self, body: bytes, headers: Mapping[str, str]) -> ModelAnswer:
        """Sends an invocation. Status 504 means that the server did not answer in time, 500 that it is gone."""
        try:
            response = self._pool.request(
                "POST",
                urlsplit(self.invocations_url).path,
                body=body,
                headers=headers,
                timeout=Timeout(total=INVOCATION_TIMEOUT_S),
                preload_content=False,
            )
            with contextlib.closing(response):
                content = response.read(MAX_ANSWER_BYTES + 1)
                if len(content) > MAX_ANSWER_BYTES:
                    return _failure(500, f"The model's answer is longer than {MAX_ANSWER_BYTES} bytes.")
                response.release_conn()
            return ModelAnswer(response.status, self._content_type(response.headers), content)
        except ReadTimeoutError:
            return _failure(http.HTTPStatus.GATEWAY_TIMEOUT, "")
        except (HTTPError, OSError) as error:
            self.refuses = isinstance(error, NewConnectionError)
            return _failure(500, f"The model's server did not answer: {error}")

    def extra_headers(self, content_type: str) -> Mapping[str, str]:
        """Returns the headers that a load generator adds to invocations of a content type."""
        return {}

    def _content_type(self, headers: Mapping[str, str]) -> str:
        return headers.get("Content-Type", "application/octet-stream")

    def is_ready(self) -> bool:
        """Returns whether the health check passes."""
        try:
            return all(
                self._pool.request("GET", path, timeout=PING_TIMEOUT_S).status == http.HTTPStatus.OK
                for path in self._health_paths
            )
        except HTTPError:
            return False

    @property
    def exit_status(self) -> int | None:
        return self._process.exit_status

    def exit_status_if_silent(self) -> int | None:
        """Returns the exit status of a server that does not answer. Its guard reports the end a moment later."""
        if not self.is_ready():
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(DEATH_REPORT_S)
        return self.exit_status

    def wait(self) -> int:
        """Blocks until it ends and returns the exit status; 128 + N for signal N."""
        return self._process.wait()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def log_tail(self, lines: int = LINES_SHOWN) -> str:
        return "\n".join(self._log_lines()[-lines:])

    def _log_lines(self) -> list[str]:
        with contextlib.suppress(OSError):
            logged = self.log_file.read_text("utf-8", "replace").splitlines()
            return [line for line in logged if _NOISE not in line]
        return []

    def request_stop(self) -> None:
        """Requests its end and returns at once; `stop` must still follow."""
        self._pool.close()  # Triton waits for the end of every connection
        self._process.request_stop()

    def stop(self) -> None:
        """Sends SIGTERM, and after a grace period SIGKILL to the whole group. May be called twice."""
        self._pool.close()
        self._process.stop()

    def wait_until_ready(self, model: str, timeout_s: float) -> None:
        """Returns when the health check passes. Otherwise stops the server and raises `Unavailable`."""
        deadline = time.monotonic() + timeout_s
        try:
            while self.exit_status is None and time.monotonic() < deadline:
                if self.is_ready():
                    return
                time.sleep(0.05)
        except BaseException:  # Ctrl-C, too, must not leave a server behind
            self.stop()
            raise
        status, lines = self.exit_status, self._log_lines()
        self.stop()
        first_error = next((at for at, line in enumerate(lines) if _ERROR.match(line)), None)
        if first_error is None:
            what, shown = "Its last lines", lines[-LINES_SHOWN:]
        else:
            what, shown = "From its first error", lines[first_error:][:LINES_SHOWN]
        log = f"Its whole log is {self.log_file}." + (f" {what}:\n" + "\n".join(shown) if shown else "")
        if status is not None:
            message = f"{self.KIND} could not load the model '{model}' and ended with exit status {status}. {log}"
            raise ModelDidNotLoad(message, self.pid, self.log_file)
        message = f"{self.KIND} was not ready with the model '{model}' after {timeout_s:g} s and was stopped. {log}"
        raise Unavailable(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _failure(status: int, reason: str) -> ModelAnswer:
    return ModelAnswer(status, "text/plain", reason.encode())


def launch(
    command: Sequence[str],
    kind: str,
    log_file: Path,
    *,
    environment: Mapping[str, str],
    remove: Sequence[str],
    grace_s: float = GRACE_S,
) -> GuardedProcess:
    """Starts a server with this environment only; the guard removes `remove` at its end. Raises `Unavailable`."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    log_file.unlink(missing_ok=True)
    log_file.touch(mode=0o600)
    with log_file.open("ab") as log:
        try:
            return GuardedProcess.start(
                command, environment=environment, stdout=log, stderr=log, grace_s=grace_s, remove=remove
            )
        except OSError as error:
            raise Unavailable(f"{kind} could not be started: {error}. The whole log is {log_file}.") from error
