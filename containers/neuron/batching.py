"""Dynamic batching in one process: requests that wait are answered together.

A batch starts when the waiting rows reach a preferred size, or when the oldest has waited `max_queue_delay_ms`. A
request is never split. Up to `concurrency` batches run at once, each in a thread: stages of a NeuronCore pipeline and
independent groups of cores (`engine.Lanes`) need several. The next batch starts before the answers of one are made.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from .placement import ServerSettings

Rows = Sequence[Any]
"""Tokenised rows of requests."""
QUEUED_BATCHES = 32
"""Full batches that may wait for each running batch. Requests beyond them are refused at once."""
STUCK_S = 20.0
"""A core that does not answer for this long counts as dead. SageMaker waits 60 s for an answer."""
QUIET_S = 5.0  # An older answer is no evidence that the cores work


class Steps(Protocol):
    """The steps of a batch: `run` in a thread, then `answers` in the event loop, one per row and in order."""

    def run(self, rows: Rows) -> Any: ...

    def answers(self, outputs: Any, rows: Rows) -> Sequence[Any]: ...


class QueueFull(Exception):
    """Too many rows wait; becomes HTTP 503."""


@dataclass(frozen=True, eq=False)
class QueuedRequest:
    rows: Rows
    since_s: float  # by the loop's clock
    answers: "asyncio.Future[Sequence[Any]]"


def _run_calls(calls: "SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None]") -> None:
    """Runs in a thread until None. Cheaper than an executor, which adds a future and a lock for each call."""
    while item := calls.get():
        result, call = item
        try:
            settle, outcome = result.set_result, call()
        except Exception as error:
            settle, outcome = result.set_exception, error
        with suppress(RuntimeError):  # the loop has ended
            result.get_loop().call_soon_threadsafe(_settle, result, settle, outcome)


def _settle(result: "asyncio.Future[Any]", settle: Callable[[Any], None], outcome: Any) -> None:
    if not result.done():  # else its task was cancelled
        settle(outcome)


class CoreWatch:
    """Detects cores that hang or fail. The clock counts seconds. A worker without requests probes its cores."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began: dict[object, float] = {}  # when each running call began
        self._answered = now()
        self._failure = ""

    @contextmanager
    def call(self, probe: bool = False) -> Iterator[None]:
        """Times a call of the model. A failed probe proves a fault of the cores, a failed batch only requests one."""
        call = object()
        self._began[call] = self._now()
        try:
            yield
            self._answered = self._now()
        except Exception as error:
            self._answered = -inf
            if probe:
                self._failure = f"fails: {type(error).__name__}: {error}"
            raise
        finally:
            del self._began[call]

    def needs_probe(self) -> bool:
        """Returns whether no call runs, and the last one failed or was long ago."""
        return not self._began and self._now() - self._answered > QUIET_S

    def complaint(self) -> str:
        """Returns the fault, to follow the worker's name; empty while its cores answer."""
        if self._now() - min(self._began.values(), default=self._now()) > STUCK_S:
            return f"has not answered for {STUCK_S:.0f} s"
        return self._failure


class Batcher:
    """Use inside a running loop, between `start` and `stop`.

    A batch of `full` rows starts at once (default: `max_batch_size`), for example when it occupies one chip.
    """

    def __init__(
        self, steps: Steps, settings: ServerSettings, concurrency: int, watch: CoreWatch, full: "int | None" = None
    ) -> None:
        self._steps = steps
        self._settings = settings
        self._calls: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._concurrency = concurrency
        self._watch = watch
        self._full = full or settings.max_batch_size
        self._queue: deque[QueuedRequest] = deque()
        self._rows = 0  # of the whole queue
        self._most_rows = QUEUED_BATCHES * concurrency * settings.max_batch_size
        self._arrived = asyncio.Event()
        self._forming = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for _ in range(self._concurrency):
            Thread(target=_run_calls, args=(self._calls,), daemon=True).start()
            self._tasks.append(asyncio.create_task(self._work()))

    async def stop(self) -> None:
        """Cancels the batching tasks, also of a stuck batch. The queue must be empty. Does not wait for the threads."""
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self._calls.put(None)

    async def answer(self, rows: Rows) -> Sequence[Any]:
        """Waits for the batch that answers `rows`. Raises what a step raised, or `QueueFull`.

        Cancelling it while it waits removes its rows from the queue.
        """
        if self._rows + len(rows) > self._most_rows:
            raise QueueFull(f"{self._rows} rows wait for an answer; at most {self._most_rows} may wait.")
        loop = asyncio.get_running_loop()
        request = QueuedRequest(rows, loop.time(), loop.create_future())
        self._queue.append(request)
        self._rows += len(rows)
        self._arrived.set()
        try:
            return await request.answers
        except asyncio.CancelledError:
            with suppress(ValueError):  # its batch has started
                self._queue.remove(request)
                self._rows -= len(rows)
            raise

    async def probe(self, call: Callable[[], None]) -> None:
        """Runs `call` in a batch's thread. The watch records whether it failed."""
        with suppress(Exception), self._watch.call(probe=True):
            await self._in_thread(call)

    def _in_thread(self, call: Callable[[], Any]) -> "asyncio.Future[Any]":
        result = asyncio.get_running_loop().create_future()
        self._calls.put((result, call))
        return result

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            async with self._forming:
                batch = await self._form()
            rows = [row for request in batch for row in request.rows]
            try:
                with self._watch.call():
                    outputs = await self._in_thread(partial(self._steps.run, rows))
            except Exception as error:  # each runtime has its own errors
                _fail(batch, error)
            else:
                loop.call_soon(self._answer, batch, rows, outputs)  # after the next batch has started

    def _answer(self, batch: Sequence[QueuedRequest], rows: Rows, outputs: Any) -> None:
        try:
            answers = self._steps.answers(outputs, rows)
            if len(answers) != len(rows):
                raise RuntimeError(f"the model gave {len(answers)} answers to {len(rows)} rows")
        except Exception as error:
            _fail(batch, error)
            return
        start = 0
        for request in batch:
            end = start + len(request.rows)
            if not request.answers.done():  # else the client has hung up
                request.answers.set_result(answers[start:end])
            start = end

    async def _form(self) -> list[QueuedRequest]:
        loop = asyncio.get_running_loop()
        while True:
            while not self._queue:
                await self._wait_for_more(None)
            remaining_s = self._queue[0].since_s + self._settings.max_queue_delay_ms / 1000 - loop.time()
            due = self._rows >= min(self._settings.preferred_batch_sizes, default=self._full)
            if not self._settings.dynamic_batching or due or remaining_s <= 0:
                if batch := self._take():
                    return batch
            else:
                await self._wait_for_more(remaining_s)

    async def _wait_for_more(self, seconds: "float | None") -> None:
        self._arrived.clear()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._arrived.wait(), seconds)

    def _take(self) -> list[QueuedRequest]:
        """Takes the oldest whole requests up to the largest preferred size they fill, else up to a full batch.

        Takes one request without dynamic batching. Skips those whose client has hung up.
        """
        limit = 1
        if self._settings.dynamic_batching:
            fitting = (size for size in self._settings.preferred_batch_sizes if size <= self._rows)
            limit = min(max(fitting, default=self._full), self._full)
        batch: list[QueuedRequest] = []
        rows = 0
        while self._queue and (not batch or rows + len(self._queue[0].rows) <= limit):
            request = self._queue.popleft()
            self._rows -= len(request.rows)
            if not request.answers.done():
                batch.append(request)
                rows += len(request.rows)
        return batch


def _fail(batch: Sequence[QueuedRequest], error: Exception) -> None:
    for request in batch:
        if not request.answers.done():
            request.answers.set_exception(error)
