"""A worker process with one core and one copy of the model. It answers chunks and writes their files.

`worker_pool` starts it as `python -m ….worker MODEL OUTPUT BATCH_ROWS`. It writes one line when the model is loaded.
It then reads one chunk per line of standard input, as JSON with the `path` of the text, and writes one line for each.
It ends with its input, and so also with the process that started it.

While the core runs a chunk, a thread tokenises the next one and queues it.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ..container_errors import ContainerError
from ..worker_process import send, take_standard_output
from .account import bad_name, predictions_name
from .answering import BatchPredictor, ChunkAnswers, RunningChunk
from .source import Chunk
from .storage import OutputStorage, open_storage

SWITCH_S = 0.0005
"""Seconds until a waiting thread gets the interpreter. Python's 5 ms are longer than a small model's batch."""


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
            _write(answered, storage)
            send(replies, {"chunk": answered.chunk.number, **asdict(answered.counts)})
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
            yield predictor.finish(running)
    finally:
        thread.shutdown(wait=False)  # it may wait for an order that never comes


def _start(order: dict[str, Any], predictor: BatchPredictor, batch_rows: int) -> RunningChunk:
    chunk = Chunk(**{field.name: order[field.name] for field in fields(Chunk)})
    with Path(order["path"]).open("rb") as handle:
        handle.seek(chunk.start)
        text = handle.read(chunk.end - chunk.start)
    return predictor.start(text, chunk, batch_rows)


def _write(answered: ChunkAnswers, storage: OutputStorage) -> None:
    number = answered.chunk.number
    if answered.bad:
        storage.write(bad_name(number), answered.bad)
    storage.write(predictions_name(number), answered.predictions)  # last: it marks the chunk as done


if __name__ == "__main__":
    sys.exit(main())
