"""A worker process with one core and one copy of the model, which answers chunks and writes their files itself.

`worker_pool` starts it as `python -m ….worker MODEL OUTPUT BATCH_ROWS`. It writes one line when the model is loaded,
then reads one chunk per line of its standard input, as JSON with the `path` of the text, and writes one line for each.
It ends when its input ends, and so also when the process that started it is gone.
"""

import json
import os
import signal
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, TextIO

from ..errors import ContainerError
from .answering import answer_chunk
from .chunks import Chunk
from .manifest import bad_name, predictions_name
from .predictor import EncoderPredictor, Predictor
from .storage import Storage, open_storage


def main() -> int:
    # A Ctrl-C reaches the whole process group; the parent decides what it means, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    replies = _take_standard_output()
    model, output, batch_rows = sys.argv[1:]
    try:
        predictor = EncoderPredictor.load(Path(model))
        storage = open_storage(output)
        _reply(replies, {"ready": True})
        for line in sys.stdin:
            _reply(replies, _work(json.loads(line), predictor, storage, int(batch_rows)))
    except (ContainerError, OSError) as error:
        _reply(replies, {"failed": str(error)})
        return 3
    return 0


def _take_standard_output() -> TextIO:
    """Keeps standard output for the replies, and sends what a runtime prints there to standard error."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return replies


def _reply(replies: TextIO, document: dict[str, Any]) -> None:
    replies.write(json.dumps(document) + "\n")
    replies.flush()


def _work(order: dict[str, Any], predictor: Predictor, storage: Storage, batch_rows: int) -> dict[str, Any]:
    chunk = Chunk(**{field.name: order[field.name] for field in fields(Chunk)})
    with Path(order["path"]).open("rb") as handle:
        handle.seek(chunk.start)
        text = handle.read(chunk.end - chunk.start)
    answered = answer_chunk(text, chunk, predictor, batch_rows)
    if answered.bad:
        storage.write(bad_name(chunk.number), answered.bad)
    storage.write(predictions_name(chunk.number), answered.predictions)  # last: it marks the chunk as done
    return {"chunk": chunk.number, **answered.counts.document()}


if __name__ == "__main__":
    sys.exit(main())
