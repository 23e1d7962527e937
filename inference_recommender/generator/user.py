"""One closed-loop user: a keep-alive HTTP/1.1 connection that sends its next request when the last one returns.

Requests are bytes made before the clock starts; nothing is parsed of a response but its status and its end.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast
from urllib.parse import urlsplit

import httptools

from inference_recommender.generator.records import CONNECTION_FAILED, Records

Clock = Callable[[], float]
PRIME = 7919
"""Users start this far apart in the payloads, so that no two send the same sequence at once."""


def serialise(url: str, content_type: str, bodies: Sequence[bytes]) -> list[bytes]:
    """Each body as a whole HTTP request."""
    parts = urlsplit(url)
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: {content_type}\r\n"
    return [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]


class User(asyncio.Protocol):
    def __init__(
        self,
        *,
        number: int,
        requests: Sequence[bytes],
        records: Records,
        clock: Clock,
        intended: float,
        on_lost: Callable[["User", str], None],
    ) -> None:
        self.number = number
        self.leaving = False
        self._requests = requests
        self._next = number * PRIME % len(requests)
        self._records = records
        self._clock = clock
        self._intended = intended
        self._sent: float | None = None
        self._on_lost = on_lost
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None

    @property
    def busy(self) -> bool:
        """A request is under way."""
        return self._sent is not None

    def leave(self) -> None:
        """Finish the request under way, then hang up."""
        self.leaving = True
        if self._sent is None and self._transport is not None:
            self._transport.close()

    def abandon(self) -> None:
        """Hang up now; the request under way is no record, since its latency is unknown."""
        self.leaving, self._sent = True, None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.leaving:
            self._transport.close()
        else:
            self._send()

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
        finished = self._clock()
        assert self._sent is not None
        assert self._transport is not None
        self._records.add(self._intended, self._sent, finished, self._parser.get_status_code(), self.number)
        self._intended, self._sent = finished, None
        if self.leaving or not self._parser.should_keep_alive():
            self._transport.close()
        else:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc else "the connection was closed")

    def _send(self) -> None:
        assert self._transport is not None
        self._sent = self._clock()
        self._transport.write(self._requests[self._next])
        self._next = (self._next + 1) % len(self._requests)

    def _fail(self, reason: str) -> None:
        if self._sent is not None:
            self._records.add(self._intended, self._sent, self._clock(), CONNECTION_FAILED, self.number)
            self._sent = None
        self._on_lost(self, reason)
