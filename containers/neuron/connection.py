"""A caller's HTTP/1.1 connection: reads its requests within limits, has each answered in order, and gives up in time.

httptools (llhttp) parses, strictly: two lengths, a length beside chunks, bare line feeds and folded lines are refused.
What a caller may send is bounded in size, number and time (`Limits`). A mistake is answered and ends the connection. A
caller that hangs up takes its requests back. Bodies stay as they come: nothing is decompressed.

Nothing here knows of models. `http_server` holds the connections and tells each when its time is over.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from math import inf
from types import MappingProxyType
from typing import NamedTuple, Protocol, cast

import httptools

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
CONTINUE = STATUS_LINES[100] + b"\r\n"


@dataclass(frozen=True)
class Limits:
    """Bounds of one server process. Sizes are bytes, times are seconds."""

    body: int = 6_291_456  # SageMaker's own limit
    head: int = 16_384  # path and headers of a request, each; trailers count as headers
    headers: int = 64
    held: int = 134_217_728  # bodies of all requests that are not answered yet
    connections: int = 1024
    ahead: int = 8  # requests that a connection may hold behind the one being answered
    head_s: float = 10.0
    body_s: float = 60.0
    idle_s: float = 75.0  # more than a load balancer's 60, which should be the one to close a connection
    write_s: float = 30.0  # for the caller to read its answer
    linger_s: float = 5.0  # for a caller to read why it was refused, before its connection is cut


class Request(NamedTuple):
    method: str
    path: str  # without the query
    headers: Mapping[bytes, bytes]  # names in lower case
    body: bytes
    keep_alive: bool
    http_1_0: bool


class Answer(NamedTuple):
    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = MappingProxyType({})


class Host(Protocol):
    """The server as a connection sees it."""

    keeps_alive: bool
    held: int

    def respond(self, request: Request, /) -> Awaitable[Answer]: ...

    def refuse(self, status: int, sentence: str, /) -> Answer: ...

    def admit(self, connection: "Connection") -> bool: ...

    def forget(self, connection: "Connection") -> None: ...

    def busy(self, connection: "Connection") -> None: ...

    def waits(self, connection: "Connection") -> None: ...

    def hold(self, size: int) -> bool: ...


class Incoming:
    """A request of which the end has not arrived."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[bytes, bytes] = {}
        self.header_count = 0
        self.header_size = 0
        self.body: bytes | bytearray = b""
        self.in_body = False
        self.wire_size = 0  # everything that was read for it, but for the first piece

    def add_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value
        self.header_count += 1
        self.header_size += len(name) + len(value)

    def add_body(self, part: bytes) -> None:
        if not self.body:
            self.body = part  # a body that comes in one piece is not copied
            return
        if isinstance(self.body, bytes):
            self.body = bytearray(self.body)  # a list of parts would take 40 times the size of chunks of one byte
        self.body += part


class Connection(asyncio.Protocol):
    def __init__(self, server: Host, limits: Limits) -> None:
        self.due_s = inf  # the moment of the loop's clock at which the server calls `overdue`
        self._server = server
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._incoming: Incoming | None = None
        self._ahead: deque[Request | Answer] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._held = 0  # bytes of the bodies that are not answered yet
        self._used = False  # whether a request has begun
        self._last = False  # whether all that the caller still sends is dropped

    # The event loop calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._server.admit(self):
            self._expect(self._limits.idle_s)
        else:
            self._last = True
            self._write(self._server.refuse(503, "All connections wait for answers."), keep_alive=False)
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._last:
            return
        incoming = self._incoming
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(400, f"The request is not HTTP/1.1: {error}.")
        if incoming and incoming is self._incoming:
            self._check_wire(incoming, len(data))

    def eof_received(self) -> None:
        """Lets the transport close: a caller that sends no more is taken to read no more."""

    def connection_lost(self, error: "Exception | None") -> None:
        self._last = True
        self._ahead.clear()
        self._release(self._held)
        self._server.forget(self)
        if self._answering:
            self._answering.cancel()

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # The server calls these.

    def overdue(self) -> None:
        """Ends the connection: with a sentence where a request has begun, else without."""
        if self._incoming and not self._writable:
            self._refuse(408, "The request did not arrive in time.")
        else:
            self.cut()

    def leave(self, within_s: float) -> None:
        """Ends the connection once the request that has begun is answered; one that is new may still send it."""
        if not self._used:
            self.due_s = min(self.due_s, self._loop.time() + within_s)
        elif not self._incoming and not self._answering:
            self._transport.close()

    def cut(self) -> None:
        self._last = True
        self._transport.abort()

    # The parser calls these.

    def on_message_begin(self) -> None:
        if not self._last:
            self._incoming = Incoming()
            self._used = True
            self._expect(self._limits.head_s)

    def on_url(self, url: bytes) -> None:
        if self._incoming:
            self._incoming.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._incoming:
            return
        self._incoming.add_header(name, value)
        if self._incoming.header_count > self._limits.headers or self._incoming.header_size > self._limits.head:
            self._refuse(431, f"Headers may be {self._limits.headers}, and {self._limits.head} bytes in all.")

    def on_headers_complete(self) -> None:
        incoming, limits = self._incoming, self._limits
        if not incoming or self._parser.should_upgrade():  # `_ignore_upgrade` reads it again
            return
        incoming.in_body = True
        self._expect(limits.body_s)
        if len(incoming.url) > limits.head:
            self._refuse(414, f"A path may have {limits.head} bytes.")
        elif int(incoming.headers.get(b"content-length", b"0")) > limits.body:
            self._refuse_body()
        elif incoming.headers.get(b"expect", b"").lower() == b"100-continue" and not self._answering:
            self._transport.write(CONTINUE)

    def on_body(self, part: bytes) -> None:
        if not self._incoming:
            return
        self._incoming.add_body(part)
        self._held += len(part)
        room = self._server.hold(len(part))
        if len(self._incoming.body) > self._limits.body:
            self._refuse_body()
        elif not room:
            self._refuse(503, "The bodies of the requests under way fill the memory.")

    def on_message_complete(self) -> None:
        if not self._incoming or self._parser.should_upgrade():
            return
        if len(self._ahead) >= self._limits.ahead:
            self._refuse(400, f"At most {self._limits.ahead} requests may wait in a connection.")
            return
        request = self._complete(self._incoming)
        self._incoming, self.due_s = None, inf
        self._last = not request.keep_alive
        self._answer(request)

    # Reading

    def _expect(self, seconds: float) -> None:
        self.due_s = self._loop.time() + seconds

    def _complete(self, incoming: Incoming) -> Request:
        return Request(
            method=self._parser.get_method().decode("latin-1"),
            path=incoming.url.partition(b"?")[0].decode("latin-1"),
            headers=incoming.headers,
            body=bytes(incoming.body),
            keep_alive=self._parser.should_keep_alive(),
            http_1_0=self._parser.get_http_version() == "1.0",
        )

    def _check_wire(self, incoming: Incoming, size: int) -> None:
        """Bounds what no callback sees: the beginning of a header without an end, and what chunks have beside data."""
        incoming.wire_size += size
        if incoming.wire_size > self._limits.head + (2 * self._limits.body if incoming.in_body else 0):
            self._refuse(413 if incoming.in_body else 431, "The request has too many bytes for what it holds.")

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Reads a request again without its Upgrade, which a server may ignore (RFC 9110, 7.8), and then `rest`.

        llhttp takes what follows such a head for another protocol: a body would be read as the next request.
        """
        incoming, method = self._incoming, self._parser.get_method()
        if not incoming:
            return
        if method == b"CONNECT":
            self._refuse(405, "CONNECT is not served here.")
            return
        headers = [b"%b: %b\r\n" % header for header in incoming.headers.items() if header[0] != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(b"%b %b HTTP/1.1\r\n%b\r\n%b" % (method, incoming.url, b"".join(headers), rest))

    def _refuse_body(self) -> None:
        self._refuse(413, f"The body is over {self._limits.body} bytes.")

    def _refuse(self, status: int, sentence: str) -> None:
        """Answers with an error, after what came before it, and reads no more."""
        if self._incoming:
            self._release(len(self._incoming.body))
        self._last, self._incoming, self.due_s = True, None, inf
        self._answer(self._server.refuse(status, sentence))

    # Answering

    def _answer(self, what: "Request | Answer") -> None:
        if not self._answering:
            self._server.busy(self)
            self._answering = self._loop.create_task(self._answer_in_order(what))
            return
        self._ahead.append(what)
        if not self._transport.is_closing():
            self._transport.pause_reading()

    async def _answer_in_order(self, what: "Request | Answer") -> None:
        while True:
            if isinstance(what, Answer):
                self._end_with(what)
                return
            answer = await self._server.respond(what)
            self._release(len(what.body))
            keep_alive = what.keep_alive and self._server.keeps_alive
            self._write(answer, keep_alive, what)
            if not keep_alive:
                self._last = True
                self._transport.close()
                return
            if self._writable:
                self._server.waits(self)
                self._expect(self._limits.write_s)
                await self._writable
                self._server.busy(self)
                self.due_s = inf
            if not self._ahead:
                break
            what = self._ahead.popleft()
        self._answering = None
        self._server.waits(self)
        if not self._incoming:
            self._expect(self._limits.idle_s)
        self._resume_reading()

    def _end_with(self, refusal: Answer) -> None:
        """Gives the caller time to read its refusal: cutting the connection while it sends would destroy the answer."""
        self._write(refusal, keep_alive=False)
        self._transport.write_eof()
        self._server.waits(self)
        self._expect(self._limits.linger_s)
        self._resume_reading()

    def _write(self, answer: Answer, keep_alive: bool, request: "Request | None" = None) -> None:
        lines = [
            STATUS_LINES[answer.status],
            b"Content-Type: %b\r\nContent-Length: %d\r\n" % (answer.content_type.encode(), len(answer.body)),
        ]
        lines += [f"{name}: {value}\r\n".encode() for name, value in answer.headers.items()]
        if not keep_alive:
            lines.append(b"Connection: close\r\n")
        elif request and request.http_1_0:
            lines.append(b"Connection: keep-alive\r\n")
        lines.append(b"\r\n")
        if not request or request.method != "HEAD":
            lines.append(answer.body)
        self._transport.write(b"".join(lines))

    def _resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _release(self, size: int) -> None:
        self._held -= size
        self._server.held -= size
