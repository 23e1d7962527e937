"""Dynamic batching in one process: requests that wait are answered together.

A batch starts when the waiting rows reach a preferred size, or when the oldest has waited `max_queue_delay_ms`. A
request is never split. Up to `concurrency` batches run at once, each in a thread, because the stages of a NeuronCore
pipeline all have work only while several batches are in it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .server_settings import ServerSettings

Rows = Sequence[Mapping[str, object]]
Predict = Callable[[Rows], Sequence[Any]]


@dataclass(frozen=True)
class Waiting:
    rows: Rows
    since: float  # seconds of the loop's clock
    answers: "asyncio.Future[Sequence[Any]]"


class Batcher:
    """Use inside a running loop, between `start` and `stop`. `predict` gives one answer for each row, in order."""

    def __init__(self, predict: Predict, settings: ServerSettings, concurrency: int) -> None:
        self._predict = predict
        self._settings = settings
        self._pool = ThreadPoolExecutor(concurrency, "batch")
        self._concurrency = concurrency
        self._waiting: deque[Waiting] = deque()
        self._arrived = asyncio.Event()
        self._forming = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]

    async def stop(self) -> None:
        """Cancels the batching tasks. The caller makes sure that no request waits any more."""
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._pool.shutdown()

    async def answer(self, rows: Rows) -> Sequence[Any]:
        """Waits for the batch that answers `rows`. Raises what `predict` raised for it."""
        loop = asyncio.get_running_loop()
        waiting = Waiting(rows, loop.time(), loop.create_future())
        self._waiting.append(waiting)
        self._arrived.set()
        return await waiting.answers

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            async with self._forming:
                batch = await self._form()
            rows = [row for waiting in batch for row in waiting.rows]
            try:
                answers = await loop.run_in_executor(self._pool, self._predict, rows)
            except Exception as error:  # each runtime has its own errors; these requests are answered with it
                _fail(batch, error)
            else:
                _deliver(batch, answers)

    async def _form(self) -> list[Waiting]:
        """Waits until a batch may start, and takes its requests from the queue."""
        while not self._waiting:
            await self._wait_for_more(None)
        loop = asyncio.get_running_loop()
        deadline = self._waiting[0].since + self._settings.max_queue_delay_ms / 1000
        while (remaining := deadline - loop.time()) > 0 and self._settings.dynamic_batching and not self._is_due():
            await self._wait_for_more(remaining)
        return self._take()

    async def _wait_for_more(self, seconds: "float | None") -> None:
        self._arrived.clear()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._arrived.wait(), seconds)

    def _is_due(self) -> bool:
        smallest = min(self._settings.preferred_batch_sizes, default=self._settings.max_batch_size)
        return sum(len(waiting.rows) for waiting in self._waiting) >= smallest

    def _take(self) -> list[Waiting]:
        """Takes whole requests, oldest first, up to the largest preferred size they fill, else up to the maximum."""
        if not self._settings.dynamic_batching:
            return [self._waiting.popleft()]
        waiting = sum(len(each.rows) for each in self._waiting)
        limit = max(
            (size for size in self._settings.preferred_batch_sizes if size <= waiting),
            default=self._settings.max_batch_size,
        )
        taken = [self._waiting.popleft()]
        rows = len(taken[0].rows)
        while self._waiting and rows + len(self._waiting[0].rows) <= limit:
            taken.append(self._waiting.popleft())
            rows += len(taken[-1].rows)
        return taken


def _deliver(batch: Sequence[Waiting], answers: Sequence[Any]) -> None:
    start = 0
    for waiting in batch:
        end = start + len(waiting.rows)
        if not waiting.answers.done():  # else the caller has gone
            waiting.answers.set_result(answers[start:end])
        start = end


def _fail(batch: Sequence[Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.answers.done():
            waiting.answers.set_exception(error)
