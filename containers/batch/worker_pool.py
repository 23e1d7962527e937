"""The worker processes of the batch: gives each its cores, sends it chunks, and collects the counts.

Chunks and replies are lines of JSON in pipes. One thread per worker waits for its replies.
"""

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ..container_errors import ContainerError, Unavailable
from ..worker_process import how_it_ended, send, worker_environment
from .answering import ChunkCounts, ModelFolder
from .source import Chunk

CHUNKS_OF_A_WORKER = 2  # The chunk that its core runs, and the next one: then no core idles


def worker_environments(
    model: ModelFolder, workers: int | None, environment: Mapping[str, str]
) -> list[dict[str, str]]:
    """Returns the environment of each worker: one core each, or the NeuronCores of one copy of the model.

    Without a number there is a worker for every core that this process may use. Raises `ContainerError`.
    """
    if not model.neuron:
        return [worker_environment(environment, {})] * (workers or len(os.sched_getaffinity(0)))
    from ..neuron import placement  # only an image for Neuron has it

    cores = placement.available(environment, placement.count_chips(), placement.cores_per_chip())
    settings = placement.ServerSettings.load(model.graphs / "server.json")
    groups = placement.groups(cores, settings.pipeline_cores)
    if workers and workers > len(groups):
        raise ContainerError(
            f"--workers {workers}: the NeuronCores hold {len(groups)} copies of the model. Give at most {len(groups)}."
        )
    own = [placement.variables(group, "one-per-core") for group in groups[:workers]]
    return [worker_environment(environment, cores) for cores in own]


class WorkerPool:
    def __init__(self, arguments: Sequence[str], environments: Sequence[Mapping[str, str]]) -> None:
        self._workers = [
            subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.worker", *arguments],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for environment in environments
        ]
        self._events: SimpleQueue[ChunkCounts | ContainerError | None] = SimpleQueue()
        self._chunks: deque[Chunk] = deque()  # those that no worker has yet
        self._lock = threading.Lock()

    def close(self) -> None:
        """Ends the workers. Their unfinished chunks are lost."""
        for worker in self._workers:
            worker.kill()
            worker.wait()
            with suppress(BrokenPipeError):
                if worker.stdin:
                    worker.stdin.close()

    def load(self) -> None:
        """Returns when every worker has its model. Raises `Unavailable`."""
        for number, worker in enumerate(self._workers):
            _read_reply(number, worker)

    def answer(self, chunks: Sequence[Chunk], files: Mapping[str, Path]) -> Iterator[ChunkCounts]:
        """Yields each chunk's counts once it is done, in any order. Raises `Unavailable` as soon as a worker fails."""
        self._chunks.extend(chunks)
        for number in range(len(self._workers)):
            threading.Thread(target=self._feed, args=(number, files), daemon=True).start()
        busy = len(self._workers)
        while busy:
            event = self._events.get()
            if isinstance(event, ContainerError):
                raise event
            if event is None:
                busy -= 1
            else:
                yield event

    def _feed(self, number: int, files: Mapping[str, Path]) -> None:
        worker, running = self._workers[number], 0
        try:
            while True:
                while chunk := self._take(running):
                    assert worker.stdin
                    with suppress(BrokenPipeError):  # the worker has ended, which reading its reply reports
                        send(worker.stdin, {**asdict(chunk), "path": str(files[chunk.file].resolve())})
                    running += 1
                if not running:
                    break
                reply = _read_reply(number, worker)
                self._events.put(ChunkCounts(*(reply[key] for key in ("answered", "bad", "tokens", "slots"))))
                running -= 1
            self._events.put(None)
        except ContainerError as error:
            self._events.put(error)

    def _take(self, running: int) -> Chunk | None:
        """Returns the next chunk for a worker that has `running` chunks, or None.

        A worker gets one chunk to run, and another to tokenise while there is one for each worker. The last chunks are
        given out one by one, so that none waits while another core is idle.
        """
        with self._lock:
            if running < CHUNKS_OF_A_WORKER and len(self._chunks) >= (len(self._workers) if running else 1):
                return self._chunks.popleft()
            return None


def _read_reply(number: int, worker: "subprocess.Popen[str]") -> dict[str, Any]:
    """Returns the worker's next reply. Raises `Unavailable`."""
    assert worker.stdout
    if line := worker.stdout.readline():
        reply: dict[str, Any] = json.loads(line)
        if "failed" not in reply:
            return reply
        reason = f"failed: {reply['failed']}".removesuffix(".")
    else:
        reason = how_it_ended(worker.wait())
    raise Unavailable(f"worker {number} {reason}. Finished chunks are kept. Run the same command again to continue.")
