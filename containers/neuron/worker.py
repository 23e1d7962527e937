"""A worker process with its own NeuronCores, copy of the model and socket on the shared port.

The launcher starts it as `python -m ….worker FOLDER LISTENER CONCURRENCY`, where LISTENER is the number of an inherited
descriptor. It writes lines of JSON to standard output:

    loaded       the model is loaded, warm, and computes what its original does (`encoder.goldens`); the worker then
                 waits for a line of standard input before it listens
    serving      it accepts connections
    (empty)      every 2 s: its event loop and its cores work
    requests …   every minute: its requests
    failed       the reason why it ends

It ends on SIGTERM, or when its standard input ends and so also with the launcher, after it has answered its requests.
If its cores hang or fail it ends at once.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import uvloop

from ..container_errors import ContainerError
from ..encoder import goldens
from ..encoder.answers import Answer, answer
from ..encoder.engines.engine import Lanes
from ..encoder.predictor import Predictor
from ..encoder.row import Refusal
from ..encoder.tensors import Encoding
from ..worker_process import send, take_standard_output
from .application import ErrorResponses, InferenceRoutes
from .batching import Batcher, CoreWatch
from .http_server import NeuronHttpServer, limits
from .placement import ServerSettings
from .telemetry import RequestRecord, period_s, ticks

DRAIN_S = 20.0
"""Seconds for open requests after SIGTERM. SageMaker and ECS kill the container after 30 s."""
REPORT_PERIOD_S = 2.0
WARM_UP_RUNS = 2  # The first run loads the graph onto its core, the second has its buffers too


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches the launcher, which decides
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    reports = take_standard_output()
    folder, listener, concurrency = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3])
    try:
        predictor = Predictor.load(folder)
        warm_up(predictor)
        goldens.check(predictor.engine, predictor.settings, folder)
    except Exception as error:  # each runtime has its own errors for a model it cannot run
        reason = str(error) if isinstance(error, ContainerError) else f"{type(error).__name__}: {error}"
        send(reports, {"failed": f"could not load the model: {reason}"})
        return 3
    send(reports, {"loaded": True})
    if sys.stdin.readline():
        serving = ServerSettings.load(folder / "server.json")
        uvloop.run(serve(predictor, serving, concurrency, reports, listener))
    return 0


def warm_up(predictor: Predictor) -> None:
    """Runs batches of each compiled length on every core, because the first runs of a graph are slow."""
    for length in predictor.settings.pad_to or (predictor.settings.max_input_tokens,):
        for _ in range(WARM_UP_RUNS):
            probe_cores(predictor, length)


def probe_cores(predictor: Predictor, length: int) -> None:
    """Runs as many dummy rows as occupy all cores of this process."""
    engine = predictor.engine
    rows = engine.count * engine.rows if isinstance(engine, Lanes) else max(1, predictor.settings.batch_size)
    ones = np.ones((rows, length), np.int64)
    full = np.full(rows, length, np.int64)
    engine.run({name: full if name == "valid_length" else ones for name in predictor.settings.inputs})


class TokenisedRow(NamedTuple):
    encoding: Encoding
    row: Mapping[str, object]


class EncoderSteps:
    """The model's steps: rows are tokenised as they arrive, batches run, and then the answers are made."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    def encode(self, rows: Sequence[Mapping[str, object]]) -> "list[TokenisedRow | Refusal]":
        encoded = zip(self._predictor.preprocessor.encode(rows), rows, strict=True)
        return [TokenisedRow(code, row) if isinstance(code, Encoding) else code for code, row in encoded]

    def run(self, rows: Sequence[TokenisedRow]) -> Any:
        return self._predictor.run([row.encoding for row in rows])

    def answers(self, outputs: Any, rows: Sequence[TokenisedRow]) -> "list[Answer]":
        return answer(self._predictor.settings, outputs, [each.encoding for each in rows], [each.row for each in rows])


async def serve(
    predictor: Predictor, serving: ServerSettings, concurrency: int, reports: TextIO, listener: socket.socket
) -> None:
    """Serves a loaded model until SIGTERM or the end of the launcher."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    watch, steps, record, errors = CoreWatch(loop.time), EncoderSteps(predictor), RequestRecord(), ErrorResponses()
    engine = predictor.engine
    lanes = (engine.count, watch, engine.rows) if isinstance(engine, Lanes) else (concurrency, watch)
    batcher = Batcher(steps, serving, *lanes)
    batcher.start()
    routes = InferenceRoutes(batcher, steps.encode, predictor.settings, serving, record, errors)
    server = NeuronHttpServer(routes.respond, errors.answer, limits())
    await server.listen(listener)
    send(reports, {"serving": True})
    background = (_report(record, reports), _watch_cores(watch, batcher, predictor, reports), _launcher_ends(ended))
    tasks = [loop.create_task(each) for each in background]
    await ended.wait()
    await server.drain(DRAIN_S)
    for task in tasks:
        task.cancel()
    await batcher.stop()


async def _report(record: RequestRecord, reports: TextIO) -> None:
    period = period_s(os.environ)
    async for _ in ticks(period, first_after_s=period):
        send(reports, record.take())


async def _watch_cores(watch: CoreWatch, batcher: Batcher, predictor: Predictor, reports: TextIO) -> None:
    """Probes the cores if no request does, and ends the process if they hang or fail."""
    shortest = next(iter(predictor.settings.pad_to), predictor.settings.max_input_tokens)
    async for _ in ticks(REPORT_PERIOD_S, first_after_s=REPORT_PERIOD_S):
        if complaint := watch.complaint():
            send(reports, {"failed": complaint})
            os._exit(3)
        if watch.needs_probe():
            probing = asyncio.create_task(batcher.probe(partial(probe_cores, predictor, shortest)))
            probing.add_done_callback(asyncio.Task.result)
        send(reports, {})


async def _launcher_ends(ended: asyncio.Event) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    ended.set()


if __name__ == "__main__":
    sys.exit(main())
