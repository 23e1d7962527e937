"""One worker: a process with one core and one copy of the model, which answers chunks and writes their files itself.

Started by `crew` as `python -m ….worker MODEL OUTPUT BATCH_ROWS`. On its standard input a chunk a line, as JSON with
the `path` of the text; on its standard output a line for each, and one first of all when the model is loaded. It ends
when its input does, so also when whoever started it is gone.
"""

import json
import os
import signal
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, TextIO

from .answering import answer_chunk
from .chunks import Chunk
from .errors import BatchError
from .manifest import bad_name, predictions_name
from .predictor import EncoderPredictor, Predictor
from .storage import Storage, open_storage


def main() -> int:
    # Whoever started this one decides what a Ctrl-C means, and ends it.
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
    except (BatchError, OSError) as error:
        _reply(replies, {"failed": str(error)})
        return 3
    return 0


def _take_standard_output() -> TextIO:
    """Keeps it for the replies: what a runtime prints goes to standard error."""
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
    storage.write(predictions_name(chunk.number), answered.predictions)  # last: now the chunk is done
    return {"chunk": chunk.number, **answered.counts.document()}


if __name__ == "__main__":
    sys.exit(main())
