"""One keep-alive HTTP/1.1 connection with at most one request under way, which it times and records.

Nothing is parsed of a response but its status and its end. A connection does not know when to send: whenever it is
free it says so, and whoever listens calls `send`.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import cast

import httptools

from inference_recommender.generator.records import CONNECTION_FAILED, Records


class Connection(asyncio.Protocol):
    def __init__(
        self,
        number: int,
        records: Records,
        on_free: Callable[["Connection"], None],
        on_lost: Callable[["Connection", str], None],
    ) -> None:
        self.number = number
        self.leaving = False
        self.free_since = perf_counter()
        """When it was asked for, then when its last answer came."""
        self._records = records
        self._on_free = on_free
        self._on_lost = on_lost
        self._intended = 0.0
        self._sent: float | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None

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
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._transport.abort() if self._transport else None
            self._fail(f"its answer is not HTTP: {error}")

    def on_body(self, body: bytes) -> None:
        if self._records.first_error is None and (status := self._parser.get_status_code()) != 200:
            self._records.first_error = f"HTTP {status}: {body[:300].decode('utf-8', 'replace')}"

    def on_message_complete(self) -> None:
        finished = perf_counter()
        assert self._sent is not None
        assert self._transport is not None
        self._records.add(self._intended, self._sent, finished, self._parser.get_status_code(), self.number)
        self.free_since, self._sent = finished, None
        if self.leaving or not self._parser.should_keep_alive():
            self._transport.close()
        else:
            self._on_free(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc else "the connection was closed")

    def _fail(self, reason: str) -> None:
        if self._sent is not None:
            self._records.add(self._intended, self._sent, perf_counter(), CONNECTION_FAILED, self.number)
            self._sent = None
        self._on_lost(self, reason)
