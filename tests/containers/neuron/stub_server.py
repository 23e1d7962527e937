"""A worker of the Neuron server without a model: it answers every row at once. Half a second to start.

`python -m tests.containers.neuron.stub_server` prints the port on loopback that it listens on, and ends when its
standard input closes.
"""

import asyncio
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from containers.encoder.settings import Settings
from containers.neuron.application import ErrorResponses, InferenceRoutes
from containers.neuron.batching import Batcher, CoreWatch, Rows
from containers.neuron.http_server import NeuronHttpServer, bind, limits
from containers.neuron.placement import ServerSettings
from containers.neuron.telemetry import RequestRecord
from workloads import ROOT

SETTINGS = Settings(
    task="text-classification",
    segments=(("text",),),
    inputs=("input_ids",),
    max_input_tokens=32,
    labels=("buy", "ask"),
    max_answer_tokens=0,
    pad_token_id=0,
    threads=1,
    pad_to=(),
    batch_size=0,
)
SERVING = ServerSettings(
    model="intent",
    max_batch_size=16,
    dynamic_batching=True,
    preferred_batch_sizes=(),
    max_queue_delay_ms=0.0,
    model_instances=1,
    placement="one-per-core",
    pipeline_cores=1,
)

HANGS_S = 120.0  # Seconds that bound a hanging test; they are no expectation of the machine's speed


class StubSteps:
    """The steps of a model that tokenises nothing and whose outputs are its answers."""

    def __init__(self, predict: Callable[[Rows], Sequence[Any]]) -> None:
        self.run = predict

    def encode(self, rows: Rows) -> Rows:
        return rows

    def answers(self, outputs: Any, rows: Rows) -> Sequence[Any]:
        answers: Sequence[Any] = outputs
        return answers


class StubServer:
    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        assert process.stdout
        self.log = log
        self.port = int(process.stdout.readline())
        self._status = Path(f"/proc/{process.pid}/status")

    def memory(self) -> int:
        """Returns the most bytes of memory that the process has ever occupied."""
        lines = dict(line.split(":", 1) for line in self._status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) << 10

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), HANGS_S)

    def ask(self, sent: bytes) -> int:
        """Sends a request over a connection of its own, and returns the status of the answer."""
        with self.connect() as connection:
            connection.sendall(sent)
            return int(connection.makefile("rb").readline().split()[1])


@contextmanager
def stub_server(log: Path, descriptors: int | None = None) -> Iterator[StubServer]:
    """Runs one; `descriptors` limits its open files, as a container may."""

    def limit() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            preexec_fn=limit,
        )
    with process:
        try:
            yield StubServer(process, log)
        finally:
            process.kill()


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    steps = StubSteps(lambda rows: [{"LABEL": "buy", "SCORE": 0.5} for _ in rows])
    batcher = Batcher(steps, SERVING, 1, CoreWatch(loop.time))
    batcher.start()
    errors = ErrorResponses()
    model = InferenceRoutes(batcher, steps.encode, SETTINGS, SERVING, RequestRecord(), errors)
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    await NeuronHttpServer(model.respond, errors.answer, limits()).listen(listener)
    print(port, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_serve())
