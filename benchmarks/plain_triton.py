"""A Triton as it comes, on TCP: for benchmarks, which compare with it or need its own HTTP API."""

import platform
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from local_aws.process.guarded_process import GuardedProcess
from local_aws.process.triton import triton_command, triton_environment
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN, TritonToolchain

START_TIMEOUT_S = 120.0


class PlainTriton(NamedTuple):
    url: str
    pid: int


@contextmanager
def http_triton(
    repository: Path, default_model: str, environment: Mapping[str, str], *flags: str
) -> Iterator[PlainTriton]:
    """Starts one that listens on a free port over HTTP, and yields it when the model is ready."""
    tools = TritonToolchain.locate(DEFAULT_TOOLCHAIN, platform.system(), platform.machine())
    port = free_port()
    listens = ["--allow-metrics=false", "--http-address=127.0.0.1", f"--http-port={port}"]
    with tempfile.TemporaryDirectory(prefix="plain_triton_") as folder:
        scratch = Path(folder)
        with (scratch / "log").open("ab") as log:
            process = GuardedProcess.start(
                [*triton_command(tools, repository, default_model, scratch, environment), *listens, *flags],
                environment=triton_environment(tools, default_model, scratch, environment),
                stdout=log,
                stderr=subprocess.STDOUT,
                remove=[f"/dev/shm/{scratch.name}*"],
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(f"{url}/v2/models/{default_model}/ready", process, scratch / "log")
            yield PlainTriton(url, process.pid)
        finally:
            process.stop()


def processor_s(pid: int) -> float:
    """Returns the CPU time of a process and its children, those that ended included."""
    parent = psutil.Process(pid)
    times = [process.cpu_times() for process in (parent, *parent.children(recursive=True))]
    return sum(time.user + time.system for time in times) + times[0].children_user + times[0].children_system


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _wait(url: str, process: GuardedProcess, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.exit_status is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"Triton did not start:\n{log.read_text('utf-8', 'replace')[-2000:]}")
