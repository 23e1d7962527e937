"""One keep-alive HTTP/1.1 connection with at most one request under way, which it times and records.

Nothing is read of an answer but its status and its end. A connection does not know when to send: whenever it is free it
says so, and whoever listens calls `send`.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import cast

import httptools

from inference_recommender.load_generator.answer import ParsedAnswer, whole_head
from inference_recommender.load_generator.records import CONNECTION_FAILED, Records


class Connection(asyncio.Protocol):
    def __init__(
        self,
        number: int,
        records: Records,
        on_free: Callable[["Connection"], None],
        on_lost: Callable[["Connection", str | None], None],
    ) -> None:
        """`on_lost` gets the reason; None where the server hung up after an answer, as it may at any time."""
        self.number = number
        self.leaving = False
        self.free_since = perf_counter()
        """When it was asked for, then when its last answer came."""
        self._records = records
        self._on_free = on_free
        self._on_lost = on_lost
        self._intended = 0.0
        self._sent: float | None = None
        self._answers = 0
        self._lost = False
        self._transport: asyncio.Transport | None = None
        # Of the answer that is coming in:
        self._missing = 0
        self._keep_alive = True
        self._parsed: ParsedAnswer | None = None

    @property
    def busy(self) -> bool:
        """A request is under way."""
        return self._sent is not None

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, intended: float, request: bytes) -> None:
        assert self._transport is not None
        self._intended = intended
        self._sent = perf_counter()
        self._transport.write(request)

    def leave(self) -> None:
        """Finish the request under way, then hang up."""
        self.leaving = True
        if self._sent is None and self._transport is not None:
            self._transport.close()

    def abandon(self) -> None:
        """Hang up now; what is under way has no answer and so no latency."""
        self.leaving = True
        if self._sent is not None:
            self._records.add_unfinished(self._intended)
            self._sent = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.leaving:
            self._transport.close()
        else:
            self._on_free(self)

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._missing -= len(data)
        elif self._parsed is not None or (head := whole_head(data)) is None:
            return self._parse(data)
        else:
            length, self._keep_alive = head
            self._missing = length - len(data)
        if self._missing == 0:
            self._complete(200)
        elif self._missing < 0 or self._sent is None:
            self._refuse("it sends more than an answer to each request")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None and self._sent is None and self._answers:
            self._tell_lost(None)
        else:
            self._fail(str(exc) if exc else "the connection was closed")

    def _parse(self, data: bytes) -> None:
        self._parsed = self._parsed or ParsedAnswer()
        try:
            self._parsed.feed(data)
        except httptools.HttpParserError as error:
            return self._refuse(f"its answer is not HTTP: {error}")
        if self._parsed.complete:
            answer, self._parsed = self._parsed, None
            self._keep_alive = answer.keep_alive
            if answer.status != 200 and self._records.first_error is None:
                self._records.first_error = f"HTTP {answer.status}: {answer.body.decode('utf-8', 'replace')}"
            self._complete(answer.status)
        return None

    def _complete(self, status: int) -> None:
        finished = perf_counter()
        if self._sent is None:  # An answer to nothing: servers say so that they hang up.
            return self._refuse("it sends more than an answer to each request")
        self._records.add(self._intended, self._sent, finished, status, self.number)
        self.free_since, self._sent = finished, None
        self._answers += 1
        if self.leaving or not self._keep_alive:
            assert self._transport is not None
            self._transport.close()
        else:
            self._on_free(self)
        return None

    def _refuse(self, reason: str) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        if self._sent is not None:
            self._records.add(self._intended, self._sent, perf_counter(), CONNECTION_FAILED, self.number)
            self._sent = None
        self._tell_lost(reason)

    def _tell_lost(self, reason: str | None) -> None:
        """Once: a connection that was given up is closed a moment later, which is no reason of its own."""
        if not self._lost:
            self._lost = True
            self._on_lost(self, reason)
