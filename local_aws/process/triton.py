"""One Triton server with SageMaker's front end (`/ping`, `/invocations`), as the SageMaker Triton container runs it.

Input: a model repository on disk and the container's environment. Output: a URL that answers. The toolchain is a
virtual environment with `nvidia-pytriton`, whose wheel carries the server; it stands for what the container has.
It does not know what an endpoint, an archive or a job is.

Triton's SageMaker front end has no flag for its address and listens on all interfaces; its plain HTTP front end is
bound to loopback.
"""

import contextlib
import http.client
import platform
import re
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from local_aws.errors import ModelDidNotLoad, TritonStartTimeout
from local_aws.process.guarded_process import GuardedProcess
from local_aws.process.triton_flags import container_flags
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN, TritonToolchain

START_TIMEOUT_S = 120.0
# Words of Triton's log when another process took a port between our choosing and its binding.
_PORT_GRABBED = re.compile(r"failed to start .*(address|port)|Address already in use|Unavailable - Socket", re.I)


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
        """Start Triton on `repository` and return when `default_model` is ready.

        Raises `ToolchainMissing`, `ModelDidNotLoad` or `TritonStartTimeout`; nothing is left running then.
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
            except BaseException:  # Ctrl-C included: no server may stay behind.
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
            *("--allow-grpc", "false", "--allow-metrics", "false", "--exit-timeout-secs", "3"),
            # A name of our own lets us remove the shared memory that a killed Triton leaves behind.
            f"--backend-config=python,shm-region-prefix-name={scratch.name}",
            *container_flags(environment),
        ]
        variables = tools.environment(scratch) | dict(environment)
        variables["SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"] = default_model
        log_file.unlink(missing_ok=True)
        with log_file.open("ab") as log:  # Appending, because the guard and Triton write through one description.
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

    def alive(self) -> bool:
        return self._process.exit_status is None

    def wait(self) -> int:
        """Block until it ends and return the exit status; 128 + N for signal N."""
        return self._process.wait()

    def log_tail(self, lines: int = 20) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self.log_file.read_text("utf-8", "replace").splitlines()[-lines:])
        return ""

    def request_stop(self) -> None:
        """Ask it to end and return at once; `stop` still has to follow."""
        self._process.request_stop()

    def stop(self) -> None:
        """SIGTERM, after a grace period SIGKILL to the whole group. Stopping twice is fine."""
        self._process.stop()

    def _wait_until_ready(self, model: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if (status := self.exit_status) is not None:
                raise ModelDidNotLoad(model, status, self.log_file, self.log_tail())
            if _pings(self.sagemaker_url):
                return
            time.sleep(0.05)
        raise TritonStartTimeout(model, timeout_s, self.log_file, self.log_tail())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


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
    """Ports that are free now. Another process may still be quicker: the caller tries again then."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("0.0.0.0", 0))  # The SageMaker front end binds all interfaces, so all must be free.
        return [int(probe.getsockname()[1]) for probe in sockets]
