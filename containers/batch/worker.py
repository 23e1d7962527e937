"""The worker processes of the batch, each with one core and one copy of the model, and the pool that sends them chunks.

The pool starts a worker as `python -m ….worker MODEL OUTPUT BATCH_ROWS`. A worker writes one line when the model is
loaded. It then reads one chunk per line of standard input, as JSON with the `path` of the text, writes the chunk's
files, and writes one line for each. It ends with its input, and so also with the process that started it.

While the core runs a chunk, a thread tokenises the next one and queues it.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ..container_errors import ContainerError, Unavailable
from ..worker_process import how_it_ended, send, take_standard_output, worker_environment
from .account import bad_name, predictions_name
from .answering import BatchPredictor, ChunkAnswers, ChunkCounts, ModelFolder
from .source import Chunk
from .storage import open_storage

CHUNKS_OF_A_WORKER = 2  # The chunk that its core runs, and the next one: then no core idles
SWITCH_S = 0.0005
"""Seconds until a waiting thread gets the interpreter. Python's 5 ms are longer than a small model's batch."""


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
    return [worker_environment(environment, placement.variables(each, "one-per-core")) for each in groups[:workers]]


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
        self._closed = False

    def close(self) -> None:
        """Ends the workers. Their unfinished chunks are lost."""
        self._closed = True
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
        except ValueError:  # a closed pipe, or half of a reply
            if not self._closed:
                raise

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
    assert worker.stdout
    if line := worker.stdout.readline():
        reply: dict[str, Any] = json.loads(line)
        if "failed" not in reply:
            return reply
        reason = f"failed: {reply['failed']}".removesuffix(".")
    else:
        reason = how_it_ended(worker.wait())
    raise Unavailable(f"worker {number} {reason}. Finished chunks are kept. Run the same command again to continue.")


def main() -> int:
    # A Ctrl-C reaches the whole process group; the parent decides and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH_S)
    replies = take_standard_output()
    model, output, batch_rows = sys.argv[1:]
    try:
        predictor = BatchPredictor.load(Path(model))
        storage = open_storage(output)
        send(replies, {"ready": True})
        for answered in answers(sys.stdin, predictor, int(batch_rows)):
            number = answered.chunk.number
            if answered.bad:
                storage.write(bad_name(number), answered.bad)
            storage.write(predictions_name(number), answered.predictions)  # last: it marks the chunk as done
            send(replies, {"chunk": number, **asdict(answered.counts)})
    # Return would wait for threads that wait for an order, or that run a chunk.
    except (ContainerError, OSError) as error:
        with suppress(BrokenPipeError):  # the parent has ended
            send(replies, {"failed": str(error)})
        os._exit(3)
    except Exception:
        traceback.print_exc()
        os._exit(1)
    return 0


def answers(orders: Iterable[str], predictor: BatchPredictor, batch_rows: int) -> Iterator[ChunkAnswers]:
    """Yields the answers of each chunk. A thread prepares the next chunk while the device runs the current one."""
    starting = (_start(json.loads(order), predictor, batch_rows) for order in orders)
    thread = ThreadPoolExecutor(1)
    try:
        coming = thread.submit(next, starting, None)
        while (running := coming.result()) is not None:
            coming = thread.submit(next, starting, None)
            yield running()
    finally:
        thread.shutdown(wait=False)  # it may wait for an order that never comes


def _start(order: dict[str, Any], predictor: BatchPredictor, batch_rows: int) -> Callable[[], ChunkAnswers]:
    chunk = Chunk(**{field.name: order[field.name] for field in fields(Chunk)})
    with Path(order["path"]).open("rb") as handle:
        handle.seek(chunk.start)
        text = handle.read(chunk.end - chunk.start)
    return predictor.start(text, chunk, batch_rows)


if __name__ == "__main__":
    sys.exit(main())
