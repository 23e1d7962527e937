"""A worker process with its own NeuronCores, its own copy of the model and its own socket on the shared port.

The launcher starts it as `python -m ….worker FOLDER LISTENER CONCURRENCY`, where LISTENER is the number of a descriptor
that it inherits. It writes lines of JSON to standard output, and reads lines from standard input:

    loaded       the model is loaded, warm, and computes what its original does (`encoder.goldens`); it then waits
                 for a line before it accepts connections
    serving      it accepts them
    complaint    every 2 s: what is wrong with its cores, or nothing
    requests …   every minute: its requests

Each further line that it reads says what is wrong with any worker, which is what /ping answers. It ends on SIGTERM, or
when its standard input ends and so also when the launcher is gone, after it has answered the requests it has.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import uvloop

from ..encoder import goldens
from ..encoder.answers import Answer, answer
from ..encoder.engine import Lanes
from ..encoder.predictor import Predictor
from ..encoder.row import Refusal
from ..encoder.tensors import Encoding
from ..errors import ContainerError
from .application import Errors, Model
from .batching import Batcher
from .core_watch import CoreWatch
from .http_server import HttpServer, limits
from .server_settings import ServerSettings
from .telemetry import Record, Telemetry, ticks

DRAIN_S = 20.0
"""Seconds that requests under way have after SIGTERM; SageMaker and ECS kill the container after 30 s."""
COMPLAINT_PERIOD_S = 2.0
WARM_UP_RUNS = 2
"""The first loads the graph onto its core, the second has its buffers, too."""


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches the launcher, which decides
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    said = _take_standard_output()
    folder, listener, concurrency = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3])
    try:
        predictor = Predictor.load(folder)
        warm_up(predictor)
        goldens.check(predictor.engine, predictor.settings, folder)
    except ContainerError as error:
        _say(said, {"failed": str(error)})
        return 3
    except Exception as error:  # each runtime has its own errors for a model it cannot run
        _say(said, {"failed": f"{type(error).__name__}: {error}"})
        return 3
    _say(said, {"loaded": True})
    if not sys.stdin.readline():
        return 0
    uvloop.run(Serving(predictor, ServerSettings.load(folder / "server.json"), concurrency, said).run(listener))
    return 0


def warm_up(predictor: Predictor) -> None:
    """Runs batches of each compiled length on every core, because the first runs of a graph are slow."""
    for length in predictor.settings.pad_to or (predictor.settings.max_input_tokens,):
        for _ in range(WARM_UP_RUNS):
            ask_every_core(predictor, length)


def ask_every_core(predictor: Predictor, length: int) -> None:
    """Runs rows that say nothing, as many as occupy all cores of this process."""
    engine = predictor.engine
    rows = engine.count * engine.rows if isinstance(engine, Lanes) else max(1, predictor.settings.batch_size)
    ones = np.ones((rows, length), np.int64)
    full = np.full(rows, length, np.int64)
    engine.run({name: full if name == "valid_length" else ones for name in predictor.settings.inputs})


class Item(NamedTuple):
    """A row that has been tokenised."""

    encoding: Encoding
    row: Mapping[str, object]


class EncoderSteps:
    """The model's three steps, apart: rows are tokenised as they arrive, batches run, and then they are answered."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    def encode(self, rows: Sequence[Mapping[str, object]]) -> "list[Item | Refusal]":
        encoded = zip(self._predictor.preprocessor.encode(rows), rows, strict=True)
        return [Item(code, row) if isinstance(code, Encoding) else code for code, row in encoded]

    def run(self, items: Sequence[Item]) -> Any:
        return self._predictor.run([item.encoding for item in items])

    def answers(self, outputs: Any, items: Sequence[Item]) -> "list[Answer]":
        encodings, rows = [item.encoding for item in items], [item.row for item in items]
        return answer(self._predictor.settings, outputs, encodings, rows)


class Serving:
    """A worker whose model is loaded, inside its event loop."""

    def __init__(self, predictor: Predictor, serving: ServerSettings, concurrency: int, said: TextIO) -> None:
        self._predictor = predictor
        self._serving = serving
        self._concurrency = concurrency
        self._said = said
        self._unwell = ""  # what is wrong with any worker, by the launcher's last word
        self._probing: asyncio.Task[None] | None = None

    async def run(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, ended.set)
        watch, record, errors = CoreWatch(loop.time), Record(), Errors()
        steps = EncoderSteps(self._predictor)
        batcher = self._batcher(steps, watch)
        batcher.start()
        model = Model(
            batcher,
            steps.encode,
            self._predictor.settings,
            self._serving,
            record,
            errors,
            lambda: self._unwell or watch.complaint(),
        )
        server = HttpServer(model.respond, errors.answer, limits())
        await server.listen(listener)
        _say(self._said, {"serving": True})
        tasks = [
            loop.create_task(self._report(record)),
            loop.create_task(self._complain(watch, batcher)),
            loop.create_task(self._listen_to_launcher(ended.set)),
        ]
        await ended.wait()
        await server.drain(DRAIN_S)
        for task in tasks:
            task.cancel()
        await batcher.stop()

    def _batcher(self, steps: EncoderSteps, watch: CoreWatch) -> Batcher:
        engine = self._predictor.engine
        if not isinstance(engine, Lanes):
            return Batcher(steps, self._serving, self._concurrency, watch)
        return Batcher(steps, self._serving, engine.count, watch, engine.rows)

    async def _report(self, record: Record) -> None:
        period_s = Telemetry.read(os.environ).period_s
        async for _ in ticks(period_s, first_after_s=period_s):
            _say(self._said, record.take())

    async def _complain(self, watch: CoreWatch, batcher: Batcher) -> None:
        """Tells the launcher how the cores are, and asks them where no request does."""
        settings = self._predictor.settings
        shortest = next(iter(settings.pad_to), settings.max_input_tokens)
        async for _ in ticks(COMPLAINT_PERIOD_S, first_after_s=COMPLAINT_PERIOD_S):
            if watch.wants_probe():
                ask = partial(ask_every_core, self._predictor, shortest)
                self._probing = asyncio.create_task(batcher.probe(ask))
            _say(self._said, {"complaint": watch.complaint()})

    async def _listen_to_launcher(self, ended: Callable[[], None]) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            self._unwell = json.loads(line)["unwell"]
        ended()


def _take_standard_output() -> TextIO:
    """Keeps standard output for the launcher, and sends what a runtime prints there to standard error."""
    said = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return said


def _say(said: TextIO, document: "dict[str, object]") -> None:
    said.write(json.dumps(document) + "\n")
    said.flush()


if __name__ == "__main__":
    sys.exit(main())
