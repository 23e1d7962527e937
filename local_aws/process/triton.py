"""Starts a Triton server with SageMaker's front end (`/ping`, `/invocations`), as the SageMaker Triton container does.

It takes a model repository on disk and the container's environment, and provides a URL that answers. The toolchain is a
virtual environment with `nvidia-pytriton`, whose wheel carries the server; it stands for the container. This module
does not know endpoints, archives or jobs.

Triton's SageMaker front end has no flag for its address and listens on all interfaces; its plain HTTP front end is
bound to loopback.
"""

import contextlib
import http.client
import platform
import re
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from local_aws.process.guarded_process import GuardedProcess
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN, TritonToolchain
from workloads import Unavailable

START_TIMEOUT_S = 120.0
LIFE_FLAGS: tuple[str, ...] = ("--exit-timeout-secs=3",)
"""Flags that say how a Triton starts and ends, and nothing of what it answers."""
DEATH_TOLD_S = 5.0
"""Seconds within which the guard of a Triton that died has cleaned up and told so."""
_PORT_GRABBED = re.compile(r"failed to start .*(address|port)|Address already in use|Unavailable - Socket", re.I)
"""Words of Triton's log where another process took a port between our choice and Triton's binding."""

_PREFIX = "SAGEMAKER_TRITON_"

_FLAGS = {
    "BUFFER_MANAGER_THREAD_COUNT": ("--buffer-manager-thread-count={}", None),
    "THREAD_COUNT": ("--sagemaker-thread-count={}", None),
    "LOG_INFO": ("--log-info={}", None),
    "LOG_WARNING": ("--log-warning={}", None),
    "LOG_ERROR": ("--log-error={}", None),
    "SHM_DEFAULT_BYTE_SIZE": ("--backend-config=python,shm-default-byte-size={}", "16777216"),
    "SHM_GROWTH_BYTE_SIZE": ("--backend-config=python,shm-growth-byte-size={}", "1048576"),
}
"""The flag and the container's default by variable."""
_TRUTH = {"true": "1", "false": "0"}


class ModelDidNotLoad(Unavailable):
    """Triton ended before its model was ready. Starting it again helps if another process took its port."""


class TritonServer:
    """A running Triton. A context manager: leaving it stops the server."""

    def __init__(
        self,
        process: GuardedProcess,
        repository: Path,
        sagemaker_port: int,
        http_port: int,
        log_file: Path,
    ) -> None:
        self._process = process
        self.repository = repository
        self.log_file = log_file
        self.sagemaker_url = f"http://127.0.0.1:{sagemaker_port}"
        self.http_url = f"http://127.0.0.1:{http_port}"

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
        for attempt in range(3):
            server = cls._launch(tools, repository, default_model, environment or {}, log_file)
            try:
                server._wait_until_ready(default_model, start_timeout_s)
                return server
            except ModelDidNotLoad:
                server.stop()
                if attempt == 2 or not _PORT_GRABBED.search(server.log_tail(10)):
                    raise
            except BaseException:  # Ctrl-C, too, must not leave a server behind
                server.stop()
                raise
        raise AssertionError("unreachable")

    @classmethod
    def _launch(
        cls,
        tools: TritonToolchain,
        repository: Path,
        default_model: str,
        environment: Mapping[str, str],
        log_file: Path,
    ) -> "TritonServer":
        sagemaker_port, http_port = _free_ports(2)
        scratch = Path(tempfile.mkdtemp(prefix="local_aws_triton_"))
        log_file.parent.mkdir(parents=True, exist_ok=True)
        command: list[str | Path] = [
            tools.server,
            *(
                "--model-repository",
                repository.resolve(),
                "--backend-directory",
                tools.lay_out_backends(scratch),
            ),
            *(
                "--cache-directory",
                tools.caches,
                "--model-control-mode",
                "explicit",
                "--load-model",
                default_model,
            ),
            *("--allow-sagemaker", "true", "--sagemaker-port", str(sagemaker_port)),
            *("--allow-http", "true", "--http-address", "127.0.0.1", "--http-port", str(http_port)),
            *("--allow-grpc", "false", "--allow-metrics", "false"),
            *LIFE_FLAGS,
            # With a name of our own, the guard can remove the shared memory that a killed Triton leaves behind.
            f"--backend-config=python,shm-region-prefix-name={scratch.name}",
            *container_flags(environment),
        ]
        variables = tools.environment(scratch) | dict(environment)
        variables["SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"] = default_model
        log_file.unlink(missing_ok=True)
        with log_file.open("ab") as log:  # appends: the guard writes to it, too
            process = GuardedProcess.start(
                command,
                environment=variables,
                stdout=log,
                stderr=log,
                remove=[str(scratch), f"/dev/shm/{scratch.name}*"],
            )
        return cls(process, repository, sagemaker_port, http_port, log_file)

    @property
    def pid(self) -> int:
        """The process id of tritonserver; its Python stubs are its children."""
        return self._process.pid

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
            return "\n".join(self.log_file.read_text("utf-8", "replace").splitlines()[-lines:])
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
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=2)
    try:
        connection.request("GET", "/ping")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _free_ports(count: int) -> list[int]:
    """Returns ports that are free now. If another process takes one first, the caller tries again."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("0.0.0.0", 0))  # the SageMaker front end listens on all interfaces
        return [int(probe.getsockname()[1]) for probe in sockets]
