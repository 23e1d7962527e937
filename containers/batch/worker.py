"""A worker process with one core and one copy of the model, which answers chunks and writes their files itself.

`worker_pool` starts it as `python -m ….worker MODEL OUTPUT BATCH_ROWS`. It writes one line when the model is loaded,
then reads one chunk per line of its standard input, as JSON with the `path` of the text, and writes one line for each.
It ends when its input ends, and so also when the process that started it is gone.

The core does not wait for the CPU: while it runs a chunk, a thread tokenises the next and hands it over, too. Answers
are made as the batches end.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, TextIO, TypeVar

from ..errors import ContainerError
from .answering import Answered, Running, finish, start
from .chunks import Chunk
from .manifest import bad_name, predictions_name
from .predictor import EncoderPredictor, Predictor
from .storage import Storage, open_storage

Item = TypeVar("Item")

SWITCH_S = 0.0005
"""Seconds for which a thread in need of the interpreter lets another go on; Python's own 5 ms are longer than a small
model's batch, and as long the core would be idle."""


def main() -> int:
    # A Ctrl-C reaches the whole process group; the parent decides what it means, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH_S)
    replies = _take_standard_output()
    model, output, batch_rows = sys.argv[1:]
    try:
        predictor = EncoderPredictor.load(Path(model))
        storage = open_storage(output)
        _reply(replies, {"ready": True})
        for answered in answers(sys.stdin, predictor, int(batch_rows)):
            _write(answered, storage)
            _reply(replies, {"chunk": answered.chunk.number, **answered.counts.document()})
    # Threads are at work: one would wait for its next order, another would keep the core until its chunk is done.
    except (ContainerError, OSError) as error:
        with suppress(BrokenPipeError):  # the parent is gone
            _reply(replies, {"failed": str(error)})
        os._exit(3)
    except Exception:
        traceback.print_exc()
        os._exit(1)
    return 0


def answers(orders: Iterable[str], predictor: Predictor, batch_rows: int) -> Iterator[Answered]:
    """Yields the answers of each chunk. The device has the next one by then, if there was an order for it."""
    for running in ahead(_start(json.loads(order), predictor, batch_rows) for order in orders):
        yield finish(running, predictor)


def ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yields `items`, of which none is None. A thread makes each while the caller is busy with the one before."""
    making = iter(items)
    thread = ThreadPoolExecutor(1)
    try:
        coming = thread.submit(next, making, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, making, None)
            yield item
    finally:
        thread.shutdown(wait=False)  # it may wait for an order that never comes


def _take_standard_output() -> TextIO:
    """Keeps standard output for the replies, and sends what a runtime prints there to standard error."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return replies


def _reply(replies: TextIO, document: dict[str, Any]) -> None:
    replies.write(json.dumps(document) + "\n")
    replies.flush()


def _start(order: dict[str, Any], predictor: Predictor, batch_rows: int) -> Running:
    chunk = Chunk(**{field.name: order[field.name] for field in fields(Chunk)})
    with Path(order["path"]).open("rb") as handle:
        handle.seek(chunk.start)
        text = handle.read(chunk.end - chunk.start)
    return start(text, chunk, predictor, batch_rows)


def _write(answered: Answered, storage: Storage) -> None:
    number = answered.chunk.number
    if answered.bad:
        storage.write(bad_name(number), answered.bad)
    storage.write(predictions_name(number), answered.predictions)  # last: it marks the chunk as done


if __name__ == "__main__":
    sys.exit(main())
