"""A Triton as it comes, on TCP: for benchmarks, which compare with it or need its own HTTP API."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from local_aws.process.triton import TritonServer
from tests.builders import free_port


class PlainTriton(NamedTuple):
    url: str
    pid: int


@contextmanager
def http_triton(
    repository: Path, default_model: str, environment: Mapping[str, str], *flags: str
) -> Iterator[PlainTriton]:
    """Starts one that listens on a free port over HTTP, and yields it when the model is ready."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="plain_triton_") as folder:
        about: dict[str, Any] = {"default_model": default_model, "environment": environment, "port": port}
        with TritonServer.start(repository, **about, log_file=Path(folder) / "log", flags=flags) as server:
            yield PlainTriton(f"http://127.0.0.1:{port}", server.pid)


def processor_s(pid: int) -> float:
    """Returns the CPU time of a process and its children, those that ended included."""
    parent = psutil.Process(pid)
    times = [process.cpu_times() for process in (parent, *parent.children(recursive=True))]
    return sum(time.user + time.system for time in times) + times[0].children_user + times[0].children_system
