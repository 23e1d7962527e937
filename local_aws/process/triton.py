"""Starts a Triton server with a proxy before it (`/ping`, `/invocations`), as the SageMaker Triton container answers.

It takes a model repository on disk and the container's environment, and provides a URL that answers. The toolchain is a
virtual environment with `nvidia-pytriton`, whose wheel carries the server; it stands for the container. This module
does not know endpoints, archives or jobs.

Triton listens on a socket in a private folder, which no other user and no web page reaches, and what loads code there
is restricted to a secret besides. Its own front end for SageMaker is off: it listens on all interfaces and loads models
for whoever asks.
"""

import contextlib
import http.client
import json
import os
import platform
import secrets
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from local_aws.process.guarded_process import GuardedProcess
from local_aws.process.serve_model import plan_command
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN, TritonToolchain
from workloads import ROOT, Unavailable

START_TIMEOUT_S = 120.0
LIFE_FLAGS: tuple[str, ...] = ("--exit-timeout-secs=3",)
"""Flags that say how a Triton starts and ends, and nothing of what it answers."""
DEATH_TOLD_S = 5.0
"""Seconds within which the guard of a Triton that died has cleaned up and told so."""
RESTRICTED_APIS = ("model-repository", "shared-memory", "logging", "trace")
"""They load code, read memory or write files, and the proxy needs none of them."""
SOCKET_PATH_BYTES = 107
"""What fits into struct sockaddr_un."""
_NOISE = "NODELAY NOT SUPPORTED"
"""Triton's HTTP library says so of every connection to its socket."""

_PREFIX = "SAGEMAKER_TRITON_"

_FLAGS = {
    "BUFFER_MANAGER_THREAD_COUNT": ("--buffer-manager-thread-count={}", None),
    "THREAD_COUNT": ("--http-thread-count={}", None),
    "LOG_INFO": ("--log-info={}", None),
    "LOG_WARNING": ("--log-warning={}", None),
    "LOG_ERROR": ("--log-error={}", None),
    "SHM_DEFAULT_BYTE_SIZE": ("--backend-config=python,shm-default-byte-size={}", "16777216"),
    "SHM_GROWTH_BYTE_SIZE": ("--backend-config=python,shm-growth-byte-size={}", "1048576"),
}
"""The flag and the container's default by variable."""
_TRUTH = {"true": "1", "false": "0"}


class ModelDidNotLoad(Unavailable):
    """Triton ended before its model was ready."""


class TritonServer:
    """A running Triton. A context manager: leaving it stops the server."""

    def __init__(
        self, process: GuardedProcess, repository: Path, socket: Path, url: str, pid: int, log_file: Path
    ) -> None:
        self._process = process
        self.repository = repository
        self.socket = socket
        """Triton's own HTTP API, for whoever may open files of ours."""
        self.sagemaker_url = url
        """The URL before `/ping` and `/invocations`. It holds a key: whoever knows it is answered."""
        self.pid = pid
        """The process id of tritonserver; its Python stubs are its children."""
        self.log_file = log_file

    @classmethod
    def start(
        cls,
        repository: Path,
        *,
        default_model: str,
        environment: Mapping[str, str] | None = None,
        log_file: Path,
        toolchain: Path = DEFAULT_TOOLCHAIN,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> "TritonServer":
        """Starts Triton on `repository` and returns when `default_model` is ready.

        Raises `Unavailable` without a toolchain, and where the model does not load or takes too long; nothing is left
        running then.
        """
        tools = TritonToolchain.locate(toolchain, platform.system(), platform.machine())
        server = cls._launch(tools, repository, default_model, environment or {}, log_file)
        try:
            server._wait_until_ready(default_model, start_timeout_s)
        except BaseException:  # Ctrl-C, too, must not leave a server behind
            server.stop()
            raise
        return server

    @classmethod
    def _launch(
        cls,
        tools: TritonToolchain,
        repository: Path,
        default_model: str,
        environment: Mapping[str, str],
        log_file: Path,
    ) -> "TritonServer":
        scratch = Path(tempfile.mkdtemp(prefix="local_aws_triton_"))
        key, socket = secrets.token_urlsafe(16), scratch / "http"
        if len(os.fsencode(socket)) > SOCKET_PATH_BYTES:
            scratch.rmdir()
            raise Unavailable(
                f"Triton's socket cannot be made: {socket} is too long a name. Set TMPDIR to a shorter one."
            )
        command = plan_command(
            str(scratch),
            root=str(ROOT),
            command=[
                *triton_command(tools, repository, default_model, scratch, environment),
                *private_flags(socket),
            ],
            environment=triton_environment(tools, default_model, scratch, environment),
            socket=str(socket),
            model=default_model,
            key=key,
        )
        log_file.parent.mkdir(parents=True, exist_ok=True)
        log_file.unlink(missing_ok=True)
        log_file.touch(mode=0o600)
        with log_file.open("ab") as log:  # appends: the guard and the proxy write to it, too
            process = GuardedProcess.start(
                command,
                environment={"PATH": "/usr/local/bin:/usr/bin:/bin"},
                stdout=subprocess.PIPE,
                stderr=log,
                # With a name of our own, the guard can remove the shared memory that a killed Triton leaves behind.
                remove=[str(scratch), f"/dev/shm/{scratch.name}*"],
            )
        with process.stdout as told:
            line = told.readline()
        if not line:
            process.stop()
            last = log_file.read_text("utf-8", "replace").splitlines()[-1:]
            raise Unavailable(f"Triton could not be started: {' '.join(last)}. The whole log is {log_file}.")
        started = json.loads(line)
        return cls(process, repository, socket, f"http://127.0.0.1:{started['port']}/{key}", started["pid"], log_file)

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

    def _wait_until_ready(self, model: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if (status := self.exit_status) is not None:
                raise ModelDidNotLoad(
                    f"Triton could not load the model '{model}' and ended with exit status {status}. "
                    f"Its whole log is {self.log_file}.{self._last_lines()}"
                )
            if _pings(self.sagemaker_url):
                return
            time.sleep(0.05)
        raise Unavailable(
            f"Triton was not ready with the model '{model}' after {timeout_s:g} s and was stopped. "
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


def triton_command(
    tools: TritonToolchain, repository: Path, default_model: str, scratch: Path, environment: Mapping[str, str]
) -> list[str]:
    """Returns the command of a Triton that serves `default_model`, without what says where it listens."""
    return [
        str(tools.server),
        f"--model-repository={repository.resolve()}",
        f"--backend-directory={tools.lay_out_backends(scratch)}",
        f"--cache-directory={tools.caches}",
        "--model-control-mode=explicit",
        f"--load-model={default_model}",
        *LIFE_FLAGS,
        f"--backend-config=python,shm-region-prefix-name={scratch.name}",
        *container_flags(environment),
    ]


def triton_environment(
    tools: TritonToolchain, default_model: str, scratch: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    variables = tools.environment(scratch) | dict(environment)
    return variables | {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": default_model}


def private_flags(socket: Path) -> list[str]:
    """Returns the flags that let Triton listen on `socket` alone.

    They come last, so that no flag of a model's undoes one. The restricted APIs have a key whose value no one is told.
    """
    return [
        *("--allow-http=true", f"--http-address=unix:{socket}", "--http-port=1"),
        *("--allow-grpc=false", "--allow-metrics=false", "--allow-sagemaker=false", "--allow-vertex-ai=false"),
        f"--http-restricted-api={','.join(RESTRICTED_APIS)}:local-aws-key={secrets.token_urlsafe(32)}",
    ]


def container_flags(environment: Mapping[str, str]) -> list[str]:
    """Turns the SageMaker Triton container's environment variables into tritonserver's flags.

    Follows the container's start script (triton-inference-server/server, docker/sagemaker/serve): the same variables
    and defaults but one, verbose logging, which the container leaves on and which would drown a local log. Variables
    for GPUs and multi-model endpoints have no meaning here and are ignored.
    """
    verbose = environment.get(f"{_PREFIX}LOG_VERBOSE", "false")
    flags = [f"--log-verbose={_TRUTH.get(verbose.lower(), verbose)}"]
    for name, (flag, default) in _FLAGS.items():
        if (value := environment.get(f"{_PREFIX}{name}") or default) is not None:
            flags.append(flag.format(value))
    return flags + shlex.split(environment.get(f"{_PREFIX}ADDITIONAL_ARGS", ""))


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
