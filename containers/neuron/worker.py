"""A worker process with its own NeuronCores, its own copy of the model and its own socket on the shared port.

The launcher starts it as `python -m ….worker FOLDER HOST PORT CONCURRENCY`. It writes a line of JSON to standard output
when the model is loaded and warm, waits for a line on standard input, listens, and writes a second line; from then on
it reports its requests every minute. It ends on SIGTERM, or when its standard input ends and so also when the launcher
is gone, after it has answered the requests it has.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TextIO

import numpy as np
from aiohttp import web

from ..encoder.predictor import Predictor
from . import application
from .batching import Batcher
from .server_settings import ServerSettings
from .telemetry import Record, Telemetry, ticks

DRAIN_S = 20.0
"""Seconds that requests under way have after SIGTERM; SageMaker and ECS kill the container after 30 s."""


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches the launcher, which decides
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    said = _take_standard_output()
    folder, host, port, concurrency = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    try:
        predictor = Predictor.load(folder)
        warm_up(predictor)
    except Exception as error:  # each runtime has its own errors for a model it cannot run
        _say(said, {"failed": f"{type(error).__name__}: {error}"})
        return 3
    _say(said, {"loaded": True})
    if not sys.stdin.readline():
        return 0
    asyncio.run(_serve(predictor, ServerSettings.load(folder / "server.json"), host, port, concurrency, said))
    return 0


def warm_up(predictor: Predictor) -> None:
    """Runs one batch of each compiled length, because the first run of a graph is slow."""
    settings = predictor.settings
    for length in settings.pad_to or (settings.max_input_tokens,):
        ones = np.ones((1, length), np.int64)
        full = np.array([length], np.int64)
        predictor.engine.run({name: full if name == "valid_length" else ones for name in settings.inputs})


async def _serve(
    predictor: Predictor, serving: ServerSettings, host: str, port: int, concurrency: int, said: TextIO
) -> None:
    batcher = Batcher(predictor.predict, serving, concurrency)
    batcher.start()
    record = Record()
    model = application.Model(batcher, predictor.settings, serving, record)
    runner = web.AppRunner(application.serving(model, serving.model), access_log=None, shutdown_timeout=DRAIN_S)
    await runner.setup()
    await web.TCPSite(runner, host, port, reuse_port=True).start()
    _say(said, {"serving": True})
    reporting = asyncio.create_task(_report(record, said))
    await _told_to_end()
    reporting.cancel()
    await runner.cleanup()  # stops listening, then waits for requests under way
    await batcher.stop()


async def _report(record: Record, said: TextIO) -> None:
    period_s = Telemetry.read(os.environ).period_s
    async for _ in ticks(period_s, first_after_s=period_s):
        _say(said, record.take())


async def _told_to_end() -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_reader(sys.stdin.fileno(), ended.set)  # readable only once it ends: no more lines are sent
    await ended.wait()
    loop.remove_reader(sys.stdin.fileno())


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
