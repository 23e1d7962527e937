"""The worker processes of the batch: gives each its cores, feeds it chunk after chunk, and collects the counts.

Chunks and replies go over pipes as lines of JSON. One thread per worker waits for its replies.
"""

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from ..errors import ContainerError, Unavailable
from .answering import Counts
from .chunks import Chunk
from .predictor import Compiled

CHUNKS_OF_A_WORKER = 2
"""The chunk that its core runs, and the next: with these in its memory no core waits."""
PACKAGES = Path(__file__).parents[len(str(__package__).split("."))]
SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def worker_environments(
    compiled: Compiled, workers: int | None, environment: Mapping[str, str]
) -> list[dict[str, str]]:
    """Returns the environment of each worker on this machine: one core each, or the NeuronCores of one copy.

    Without a number there is a worker for every core that this process may use. Raises `ContainerError`.
    """
    if compiled.neuron:
        return on_neuron(_neuron_groups(compiled.graphs, environment), workers, environment)
    return on_cpu(workers, environment)


def on_cpu(workers: int | None, environment: Mapping[str, str]) -> list[dict[str, str]]:
    return [{**environment, **SINGLE_THREADED}] * (workers or len(os.sched_getaffinity(0)))


def on_neuron(
    groups: Sequence[Sequence[int]], workers: int | None, environment: Mapping[str, str]
) -> list[dict[str, str]]:
    """Gives each worker one group of NeuronCores, the first groups first."""
    from ..neuron.cores import variables

    if workers and workers > len(groups):
        raise ContainerError(
            f"--workers {workers}: the NeuronCores here hold {len(groups)} copies of the model, and none is shared. "
            f"Give at most {len(groups)}."
        )
    own = [variables(group, "one-per-core") for group in groups[:workers]]
    return [{**environment, **SINGLE_THREADED, **cores} for cores in own]


def _neuron_groups(model: Path, environment: Mapping[str, str]) -> list[list[int]]:
    """Returns the cores of each copy of the model on this machine: one, or those of a pipeline."""
    # Only an image for Neuron has the server's package.
    from ..neuron.cores import available, cores_per_chip, count_chips, groups
    from ..neuron.server_settings import ServerSettings

    cores = available(environment, count_chips(), cores_per_chip())
    return groups(cores, ServerSettings.load(model / "server.json").pipeline_cores)


class WorkerPool:
    """A context manager: leaving it, in whichever way, ends the workers. Chunks they have not finished are lost."""

    def __init__(self, arguments: Sequence[str], environments: Sequence[Mapping[str, str]]) -> None:
        self._workers = [_start(arguments, environment) for environment in environments]
        self._events: SimpleQueue[Counts | ContainerError | None] = SimpleQueue()

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()
            if worker.stdin:
                with suppress(BrokenPipeError):
                    worker.stdin.close()

    def load(self) -> None:
        """Returns when every worker has its model. Raises `Unavailable`."""
        for number, worker in enumerate(self._workers):
            _hear(number, worker)

    def answer(self, chunks: Sequence[Chunk], files: Mapping[str, Path]) -> Iterator[Counts]:
        """Yields each chunk's counts once it is done, in any order. Raises `Unavailable` as soon as a worker fails."""
        waiting = Waiting(chunks, len(self._workers))
        for number, worker in enumerate(self._workers):
            threading.Thread(target=self._feed, args=(number, worker, waiting, files), daemon=True).start()
        busy = len(self._workers)
        while busy:
            event = self._events.get()
            if isinstance(event, ContainerError):
                raise event
            if event is None:
                busy -= 1
            else:
                yield event

    def _feed(
        self, number: int, worker: "subprocess.Popen[str]", waiting: "Waiting", files: Mapping[str, Path]
    ) -> None:
        under_way = 0
        try:
            while True:
                while chunk := waiting.take(under_way):
                    _send(worker, {**asdict(chunk), "path": str(files[chunk.file].resolve())})
                    under_way += 1
                if not under_way:
                    break
                self._events.put(_counts(_hear(number, worker)))
                under_way -= 1
            self._events.put(None)
        except ContainerError as error:
            self._events.put(error)


class Waiting:
    """The chunks that no worker has yet. Threads may share it."""

    def __init__(self, chunks: Iterable[Chunk], workers: int) -> None:
        self._chunks = deque(chunks)
        self._workers = workers
        self._lock = threading.Lock()

    def take(self, under_way: int) -> Chunk | None:
        """Returns the next chunk for a worker that has `under_way`, or None where it gets none.

        It gets one to run, and another to tokenise meanwhile as long as there is one for each worker. At the end they
        come one by one, so that none waits behind a chunk while another core is idle.
        """
        with self._lock:
            if under_way < CHUNKS_OF_A_WORKER and len(self._chunks) >= (self._workers if under_way else 1):
                return self._chunks.popleft()
            return None


def _start(arguments: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[str]":
    path = os.pathsep.join(filter(None, [str(PACKAGES), environment.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.worker", *arguments],
        env={**environment, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _send(worker: "subprocess.Popen[str]", order: Mapping[str, Any]) -> None:
    """Sends an order. A worker that is gone is found out when its reply is read."""
    assert worker.stdin
    with suppress(BrokenPipeError):
        worker.stdin.write(json.dumps(order) + "\n")
        worker.stdin.flush()


def _hear(number: int, worker: "subprocess.Popen[str]") -> dict[str, Any]:
    """Returns the worker's next reply. Raises `Unavailable`."""
    assert worker.stdout
    line = worker.stdout.readline()
    if not line:
        raise _failure(number, _ending(worker.wait()))
    reply: dict[str, Any] = json.loads(line)
    if "failed" in reply:
        raise _failure(number, f"failed: {reply['failed']}")
    return reply


def _failure(worker: int, reason: str) -> Unavailable:
    return Unavailable(
        f"worker {worker} {reason.removesuffix('.')}. Finished chunks are kept: the same command goes on where "
        "this one stopped."
    )


def _ending(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _counts(reply: Mapping[str, Any]) -> Counts:
    return Counts(answered=reply["answered"], bad=reply["bad"], tokens=reply["tokens"], slots=reply["slots"])
