"""Dynamic batching in one process: requests that wait are answered together.

A batch starts when the waiting rows reach a preferred size, or when the oldest has waited `max_queue_delay_ms`. A
request is never split. The queue is bounded, and a caller that goes away leaves it.

The cores wait for as little as can be. Rows come tokenised. Up to `concurrency` batches run at once, each in a thread:
the stages of a NeuronCore pipeline all have work only while several batches are in it, and so have groups of cores that
work apart (`engine.Lanes`). When a batch has run, the next is handed over before the last is answered.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from .core_watch import CoreWatch
from .server_settings import ServerSettings

Rows = Sequence[Any]
"""Rows of requests, tokenised."""

QUEUED_BATCHES = 32
"""Full batches that may wait for each batch under way. A caller that would come behind them is refused at once."""


class Steps(Protocol):
    """The steps that a batch goes through."""

    def run(self, rows: Rows) -> Any:
        """Runs the model and returns its outputs. It is called in a thread."""

    def answers(self, outputs: Any, rows: Rows) -> Sequence[Any]:
        """Returns one answer for each row, in order. It is called in the event loop, so it takes little time."""


class QueueFull(Exception):
    """More rows wait than will be answered soon; it becomes HTTP 503."""


@dataclass(frozen=True, eq=False)
class Waiting:
    rows: Rows
    since: float  # seconds of the loop's clock
    answers: "asyncio.Future[Sequence[Any]]"


class Threads:
    """Threads that run calls for the event loop, each one at a time.

    A call through them takes half the CPU of one through an executor: 47 µs to 96, where a batch may be a single row.
    They are no reason for the process to stay when it ends.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        for number in range(count):
            Thread(target=self._work, name=f"batch_{number}", daemon=True).start()

    def run(self, call: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        """Returns what will be the result of `call`. Use inside a running loop."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Any] = loop.create_future()

        def settle(set_it: Callable[[Any], None], value: Any) -> None:
            if not result.done():  # else its task was cancelled
                set_it(value)

        def work() -> None:
            try:
                outcome = (result.set_result, call(*arguments))
            except Exception as error:
                outcome = (result.set_exception, error)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, *outcome)

        self._calls.put(work)
        return result

    def stop(self) -> None:
        """Lets each end after the call that it is in, and waits for none."""
        for _ in range(self._count):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


class Batcher:
    """Use inside a running loop, between `start` and `stop`.

    `full` is the rows of a batch that nothing is gained by waiting for more: `max_batch_size` where None.
    """

    def __init__(
        self,
        steps: Steps,
        settings: ServerSettings,
        concurrency: int,
        watch: CoreWatch,
        full: "int | None" = None,
    ) -> None:
        self._steps = steps
        self._settings = settings
        self._threads = Threads(concurrency)
        self._concurrency = concurrency
        self._watch = watch
        self._full = full or settings.max_batch_size
        self._waiting: deque[Waiting] = deque()
        self._rows = 0  # of all that wait
        self._most_rows = QUEUED_BATCHES * concurrency * settings.max_batch_size
        self._arrived = asyncio.Event()
        self._forming = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]

    async def stop(self) -> None:
        """Cancels the batching tasks. The caller makes sure that no request waits any more.

        A batch that is stuck on its cores is not waited for: the launcher kills its process.
        """
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._threads.stop()

    async def answer(self, rows: Rows) -> Sequence[Any]:
        """Waits for the batch that answers `rows`. Raises what a step raised for it, or `QueueFull`.

        A caller that is cancelled while it waits takes its rows out of the queue.
        """
        if self._rows + len(rows) > self._most_rows:
            raise QueueFull(f"{self._rows} rows wait to be answered; at most {self._most_rows} may.")
        loop = asyncio.get_running_loop()
        waiting = Waiting(rows, loop.time(), loop.create_future())
        self._waiting.append(waiting)
        self._rows += len(rows)
        self._arrived.set()
        try:
            return await waiting.answers
        except asyncio.CancelledError:
            with suppress(ValueError):  # its batch has started
                self._waiting.remove(waiting)
                self._rows -= len(rows)
            raise

    async def probe(self, call: Callable[[], None]) -> None:
        """Runs `call` where batches run. Whether it failed is for the watch to tell."""
        with suppress(Exception), self._watch.call(probe=True):
            await self._threads.run(call)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            async with self._forming:
                batch = await self._form()
            rows = [row for waiting in batch for row in waiting.rows]
            try:
                with self._watch.call():
                    outputs = await self._threads.run(self._steps.run, rows)
            except Exception as error:  # each runtime has its own errors; these requests are answered with it
                _fail(batch, error)
            else:
                loop.call_soon(self._answer, batch, rows, outputs)  # when the next batch, if one waits, is under way

    def _answer(self, batch: Sequence[Waiting], rows: Rows, outputs: Any) -> None:
        try:
            answers = self._steps.answers(outputs, rows)
            if len(answers) != len(rows):
                raise RuntimeError(f"the model gave {len(answers)} answers to {len(rows)} rows")
        except Exception as error:
            _fail(batch, error)
        else:
            _deliver(batch, answers)

    async def _form(self) -> list[Waiting]:
        """Waits until a batch may start, and takes its requests from the queue."""
        loop = asyncio.get_running_loop()
        while True:
            while not self._waiting:
                await self._wait_for_more(None)
            deadline = self._waiting[0].since + self._settings.max_queue_delay_ms / 1000
            remaining = deadline - loop.time()
            if not self._settings.dynamic_batching or self._is_due() or remaining <= 0:
                if batch := self._take():
                    return batch
            else:
                await self._wait_for_more(remaining)

    async def _wait_for_more(self, seconds: "float | None") -> None:
        self._arrived.clear()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._arrived.wait(), seconds)

    def _is_due(self) -> bool:
        return self._rows >= min(self._settings.preferred_batch_sizes, default=self._full)

    def _take(self) -> list[Waiting]:
        """Takes whole requests, oldest first, up to the largest preferred size they fill, else up to a full batch.

        Without dynamic batching it takes one. Callers that have gone by now are left out.
        """
        limit = 1
        if self._settings.dynamic_batching:
            fitting = (size for size in self._settings.preferred_batch_sizes if size <= self._rows)
            limit = min(max(fitting, default=self._full), self._full)
        taken: list[Waiting] = []
        rows = 0
        while self._waiting and (not taken or rows + len(self._waiting[0].rows) <= limit):
            waiting = self._waiting.popleft()
            self._rows -= len(waiting.rows)
            if not waiting.answers.done():
                taken.append(waiting)
                rows += len(waiting.rows)
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
