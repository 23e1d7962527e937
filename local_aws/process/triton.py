"""Starts a Triton server that answers invocations as the SageMaker Triton container does.

It takes a model repository and the container's environment. The toolchain is a virtual environment with
`nvidia-pytriton`, whose wheel contains the server.

Triton listens only on a Unix socket in a private folder. No other user and no web page can connect to it. APIs that
load code require a secret besides. Triton's own front end for SageMaker is off, because it listens on all interfaces.

`python -m local_aws.process.triton REPOSITORY --model NAME --log FILE` runs a Triton whose models another process loads
and unloads. Standard output gets one line once the model is ready: {"url": for invocations, "socket": of Triton's own
HTTP API, "header" and "key": required there to load and unload}. The first line of standard input is a JSON object with
the container's environment; the program serves until standard input is closed. Exit code 3: Triton does not start.
"""

import argparse
import contextlib
import json
import platform
import re
import secrets
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from inference_recommender.load_generator.unix_socket import socket_url
from local_aws.process.guarded_process import GuardedProcess
from local_aws.process.model_server import MAX_ANSWER_BYTES, START_TIMEOUT_S, ModelAnswer, ModelServer, launch
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN, TritonToolchain
from workloads import Unavailable
from workloads.program import exit_code

LIFE_FLAGS: tuple[str, ...] = ("--exit-timeout-secs=3",)
"""Flags that say how a Triton starts and ends, and nothing of what it answers."""
RESTRICTED_APIS = ("model-repository", "shared-memory", "logging", "trace")
"""They load code, read memory or write files, and no invocation needs them."""
CONTROL_HEADER = "local-aws-key"
BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
"""The Content-Type of a body that is JSON and then tensors; the number of bytes of JSON follows."""
JSON_SIZE = "Inference-Header-Content-Length"
_NOT_JSON = b'{"error":"failed to parse the request JSON buffer'
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
_TRUTH = {"true": "1", "false": "0"}


class TritonServer(ModelServer):
    """A running Triton."""

    KIND = "Triton"

    def __init__(
        self, process: GuardedProcess, repository: Path, socket: Path, model: str, log_file: Path, port: int | None
    ) -> None:
        path = f"/v2/models/{quote(model, safe='')}"
        url = f"http://127.0.0.1:{port}{path}/infer" if port else socket_url(str(socket), f"{path}/infer")
        super().__init__(process, repository, url, ("/v2/health/ready", f"{path}/ready"), log_file)
        self.socket = socket

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
        port: int | None = None,
        flags: Sequence[str] = (),
    ) -> "TritonServer":
        """Starts Triton on `repository` and returns when `default_model` is ready. Raises `Unavailable`.

        Callers that send `control_key` may load and unload models over `socket`. With `port` Triton listens on TCP
        instead, with `flags`: for benchmarks, which need its own HTTP API.
        """
        tools = TritonToolchain.locate(toolchain, platform.system(), platform.machine())
        scratch = Path(tempfile.mkdtemp(prefix="local_aws_triton_"))
        socket = scratch / "http"
        environment = environment or {}
        command = triton_command(tools, repository, default_model, scratch, environment)
        tcp = ["--allow-metrics=false", "--http-address=127.0.0.1", f"--http-port={port}", *flags]
        process = launch(
            [*command, *(tcp if port else private_flags(socket, control_key))],
            cls.KIND,
            log_file,
            environment=triton_environment(tools, default_model, scratch, environment),
            # The prefix of the shared memory lets the guard remove what a killed Triton leaves behind.
            remove=[str(scratch), f"/dev/shm/{scratch.name}*"],
        )
        server = cls(process, repository, socket, default_model, log_file, port)
        server.wait_until_ready(default_model, start_timeout_s)
        return server

    def invoke(self, body: bytes, headers: Mapping[str, str]) -> ModelAnswer:
        """Answers like Triton's front end for SageMaker, which reads only Content-Type and turns a 500 into 400."""
        try:
            binary = binary_headers(headers.get("Content-Type", ""), len(body))
        except ValueError as error:
            told = json.dumps({"error": str(error)}, separators=(",", ":"))
            return ModelAnswer(400, "application/json", told.encode())
        answer = super().invoke(body, binary)
        by_model = answer.status == 500 and answer.content_type == "application/json"
        if by_model and not answer.body.startswith(_NOT_JSON):
            return replace(answer, status=400)
        return answer

    def extra_headers(self, content_type: str) -> Mapping[str, str]:
        try:
            return binary_headers(content_type, MAX_ANSWER_BYTES)
        except ValueError as error:
            raise Unavailable(f"ContentType '{content_type}': {error}") from error

    def _content_type(self, headers: Mapping[str, str]) -> str:
        size = headers.get(JSON_SIZE)
        return f"{BINARY}{size}" if size else "application/json"


def binary_headers(content_type: str, length: int) -> dict[str, str]:
    """Returns Triton's header for a Content-Type that gives the size of a body's JSON. Raises ValueError."""
    at = content_type.find(BINARY)
    if at < 0:
        return {}
    size = content_type.removeprefix(BINARY)
    if at > 0:
        raise ValueError(f"expect MIME type for binary data starts with '{BINARY}', got: {content_type}")
    if not re.fullmatch(r"[0-9]{1,10}", size):
        raise ValueError(f"Unable to parse inference header size, got: {size}")
    if int(size) > length:
        raise ValueError(f"inference header size should be in range (0, {length}), got: {size}")
    return {JSON_SIZE: size}


def remove_leftovers(folder: Path = PYTHON_ENVIRONMENTS) -> None:
    """Removes the empty folders of killed Tritons, whose Python backend makes one in a place that no setting changes.

    A folder in use is not empty, or is younger than the longest start.
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
    """Returns the flags that make Triton listen only on `socket`; last, so that no flag of a model overrides one."""
    key = control_key or secrets.token_urlsafe(32)
    return [
        *("--allow-http=true", f"--http-address=unix:{socket}", "--http-port=1"),
        *("--allow-grpc=false", "--allow-metrics=false", "--allow-sagemaker=false", "--allow-vertex-ai=false"),
        f"--http-restricted-api={','.join(RESTRICTED_APIS)}:{CONTROL_HEADER}={key}",
    ]


def container_flags(environment: Mapping[str, str]) -> list[str]:
    """Turns the SageMaker Triton container's environment variables into tritonserver's flags.

    Follows the container's start script (triton-inference-server/server, docker/sagemaker/serve), but for its verbose
    logging. Variables for GPUs and multi-model endpoints are ignored.
    """
    verbose = environment.get(f"{_PREFIX}LOG_VERBOSE", "false")
    flags = [f"--log-verbose={_TRUTH.get(verbose.lower(), verbose)}"]
    for name, (flag, default) in _FLAGS.items():
        if (value := environment.get(f"{_PREFIX}{name}") or default) is not None:
            flags.append(flag.format(value))
    return flags + shlex.split(environment.get(f"{_PREFIX}ADDITIONAL_ARGS", ""))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local_aws.process.triton", description=__doc__)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--log", type=Path, required=True)
    options = parser.parse_args()
    environment, key = json.loads(sys.stdin.readline() or "{}"), secrets.token_urlsafe(32)
    about = {"default_model": options.model, "log_file": options.log, "control_key": key}
    with TritonServer.start(options.repository, environment=environment, **about) as server:
        told = {"url": server.invocations_url, "socket": str(server.socket), "header": CONTROL_HEADER, "key": key}
        print(json.dumps(told), flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
