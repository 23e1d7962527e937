"""Starts a Triton server with a proxy before it (`/ping`, `/invocations`), as the SageMaker Triton container answers.

It takes a model repository on disk and the container's environment, and provides a URL that answers. The toolchain is a
virtual environment with `nvidia-pytriton`, whose wheel carries the server; it stands for the container. This module
does not know endpoints, archives or jobs.

Triton listens on a socket in a private folder, which no other user and no web page reaches, and what loads code there
is restricted to a secret besides. Its own front end for SageMaker is off: it listens on all interfaces and loads models
for whoever asks.
"""

import contextlib
import os
import platform
import secrets
import shlex
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from local_aws.process.guarded_process import GuardedProcess
from local_aws.process.model_server import START_TIMEOUT_S, ModelServer, launch
from local_aws.process.serve_model import plan_command
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN, TritonToolchain
from workloads import ROOT, Unavailable

LIFE_FLAGS: tuple[str, ...] = ("--exit-timeout-secs=3",)
"""Flags that say how a Triton starts and ends, and nothing of what it answers."""
RESTRICTED_APIS = ("model-repository", "shared-memory", "logging", "trace")
"""They load code, read memory or write files, and the proxy needs none of them."""
CONTROL_HEADER = "local-aws-key"
SOCKET_PATH_BYTES = 107
"""The most bytes that fit into struct sockaddr_un."""
PYTHON_ENVIRONMENTS = Path("/tmp")
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


class TritonServer(ModelServer):
    """A running Triton."""

    KIND = "Triton"

    def __init__(
        self, process: GuardedProcess, repository: Path, socket: Path, url: str, pid: int, log_file: Path
    ) -> None:
        super().__init__(process, repository, url, pid, log_file)
        self.socket = socket
        """Triton's own HTTP API, for whoever may open files of ours."""

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
        control_key: str | None = None,
    ) -> "TritonServer":
        """Starts Triton on `repository` and returns when `default_model` is ready.

        Whoever knows `control_key` may load and unload models over `socket`; without one nobody may.
        Raises `Unavailable` without a toolchain, and where the model does not load or takes too long; nothing is left
        running then.
        """
        tools = TritonToolchain.locate(toolchain, platform.system(), platform.machine())
        server = cls._launch(tools, repository, default_model, environment or {}, log_file, control_key)
        try:
            server.wait_until_ready(default_model, start_timeout_s)
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
        control_key: str | None,
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
                *private_flags(socket, control_key),
            ],
            environment=triton_environment(tools, default_model, scratch, environment),
            socket=str(socket),
            model=default_model,
            key=key,
        )
        # With a name of our own, the guard can remove the shared memory that a killed Triton leaves behind.
        process, started = launch(command, cls.KIND, log_file, [str(scratch), f"/dev/shm/{scratch.name}*"])
        return cls(process, repository, socket, f"http://127.0.0.1:{started['port']}/{key}", started["pid"], log_file)


def remove_leftovers(folder: Path = PYTHON_ENVIRONMENTS) -> None:
    """Removes the empty folders of killed Tritons.

    Triton's Python backend makes one at its start, in a place that no setting changes. A folder that is in use is not
    empty, or is younger than the longest start.
    """
    for path in folder.glob("python_env_*"):
        with contextlib.suppress(OSError):  # another user's, in use, or just removed
            if time.time() - path.stat().st_mtime > START_TIMEOUT_S:
                path.rmdir()


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


def private_flags(socket: Path, control_key: str | None = None) -> list[str]:
    """Returns the flags that let Triton listen on `socket` alone.

    They come last, so that no flag of a model's undoes one. The restricted APIs want `control_key` in the header
    `CONTROL_HEADER`; without one, a key that no one is told.
    """
    key = control_key or secrets.token_urlsafe(32)
    return [
        *("--allow-http=true", f"--http-address=unix:{socket}", "--http-port=1"),
        *("--allow-grpc=false", "--allow-metrics=false", "--allow-sagemaker=false", "--allow-vertex-ai=false"),
        f"--http-restricted-api={','.join(RESTRICTED_APIS)}:{CONTROL_HEADER}={key}",
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
