"""The workers' side of the one who gives out chunks: starts them, feeds each its next chunk, hears what came of it.

Chunks and replies go over pipes as lines of JSON. A worker is heard by a thread of its own, which only waits.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from .answering import Counts
from .chunks import Chunk
from .errors import WorkerFailed

PACKAGES = Path(__file__).parents[len(str(__package__).split("."))]


class Crew:
    """Use as a context: its end, however it comes, is the workers' end. What they have not finished is lost."""

    def __init__(self, arguments: Sequence[str], environments: Sequence[Mapping[str, str]]) -> None:
        self._workers = [_start(arguments, environment) for environment in environments]
        self._events: SimpleQueue[Counts | WorkerFailed | None] = SimpleQueue()

    def __enter__(self) -> "Crew":
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
        """Returns when every worker has its model."""
        for number, worker in enumerate(self._workers):
            _hear(number, worker)

    def answer(self, chunks: Sequence[Chunk], files: Mapping[str, Path]) -> Iterator[Counts]:
        """Each chunk's counts as it is done, in no order. Raises `WorkerFailed` as soon as one has failed."""
        waiting: SimpleQueue[Chunk] = SimpleQueue()
        for chunk in chunks:
            waiting.put(chunk)
        for number, worker in enumerate(self._workers):
            threading.Thread(target=self._feed, args=(number, worker, waiting, files), daemon=True).start()
        busy = len(self._workers)
        while busy:
            event = self._events.get()
            if isinstance(event, WorkerFailed):
                raise event
            if event is None:
                busy -= 1
            else:
                yield event

    def _feed(
        self, number: int, worker: "subprocess.Popen[str]", waiting: "SimpleQueue[Chunk]", files: Mapping[str, Path]
    ) -> None:
        try:
            while True:
                chunk = waiting.get_nowait()
                order = json.dumps({**asdict(chunk), "path": str(files[chunk.file].resolve())})
                self._events.put(_counts(_hear(number, worker, order)))
        except Empty:
            self._events.put(None)
        except WorkerFailed as error:
            self._events.put(error)


def _start(arguments: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[str]":
    path = os.pathsep.join(filter(None, [str(PACKAGES), environment.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.worker", *arguments],
        env={**environment, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _hear(number: int, worker: "subprocess.Popen[str]", order: str | None = None) -> dict[str, Any]:
    """The next reply; to `order`, if one is given."""
    assert worker.stdin
    assert worker.stdout
    try:
        if order is not None:
            worker.stdin.write(order + "\n")
            worker.stdin.flush()
        line = worker.stdout.readline()
    except BrokenPipeError:
        line = ""
    if not line:
        raise WorkerFailed(number, _end(worker.wait()))
    reply: dict[str, Any] = json.loads(line)
    if "failed" in reply:
        raise WorkerFailed(number, f"failed: {reply['failed']}")
    return reply


def _end(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _counts(reply: Mapping[str, Any]) -> Counts:
    return Counts(answered=reply["answered"], bad=reply["bad"], tokens=reply["tokens"], slots=reply["slots"])
