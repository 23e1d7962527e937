"""The HTTP/1.1 server of one process: answers requests within limits and in order, ends slow connections, drains.

httptools (llhttp) parses strictly: it refuses two lengths, a length with chunks, bare line feeds and folded lines. An
error is answered and ends the connection. Requests of a client that hangs up are cancelled.

At the limit of connections, a new one replaces the one that has waited longest for its client, so that a health check
always gets in. A new connection is refused only while all others wait for answers. The limit is below that of file
descriptors, so accepting never fails.
"""

import asyncio
import resource
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from math import inf
from types import MappingProxyType
from typing import NamedTuple, cast

import httptools

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
CONTINUE = STATUS_LINES[100] + b"\r\n"
CHECK_S = 0.5
OTHER_DESCRIPTORS = 64  # Files and sockets of the process that are not connections
BACKLOG = 1024


@dataclass(frozen=True)
class HttpLimits:
    """Limits of one server process. Sizes are bytes, times are seconds."""

    body: int = 6_291_456  # SageMaker's own limit
    head: int = 16_384  # of the path, and of all headers; trailers count as headers
    headers: int = 64
    held: int = 134_217_728  # bodies of all requests without an answer
    connections: int = 1024
    ahead: int = 8  # requests of a connection that wait behind the one being answered
    head_s: float = 10.0
    body_s: float = 60.0
    idle_s: float = 75.0  # more than a load balancer's 60, so that the load balancer closes first
    write_s: float = 30.0  # for the client to read its answer
    linger_s: float = 5.0  # for the client to read an error before the connection is cut


class HttpRequest(NamedTuple):
    method: str
    path: str  # without the query
    headers: Mapping[bytes, bytes]  # names in lower case
    body: bytes
    keep_alive: bool


class HttpResponse(NamedTuple):
    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = MappingProxyType({})


Respond = Callable[[HttpRequest], Awaitable[HttpResponse]]
Refuse = Callable[[int, str], HttpResponse]


class _Incoming:
    """A request that has not arrived completely."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[bytes, bytes] = {}
        self.header_count = self.header_size = 0
        self.body = bytearray()  # a list of parts takes 40 times the size of one-byte chunks
        self.in_body = False
        self.wire_size = 0  # all bytes received for it, except the first piece


class ClientConnection(asyncio.Protocol):
    """Called by the event loop, by httptools' parser (`on_…`) and by the server (`overdue`, `leave`, `cut`)."""

    def __init__(self, server: "NeuronHttpServer") -> None:
        self.due_s = inf  # when the server calls `overdue`, by the loop's clock
        self._server = server
        self._limits = server.limits
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._incoming: _Incoming | None = None
        self._ahead: deque[HttpRequest | HttpResponse] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._held = 0  # bytes of bodies without an answer
        self._last = False  # whether further bytes are dropped

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
            # Limits what no callback sees: an unfinished header, and the bytes of chunks beside their data.
            incoming.wire_size += len(data)
            if incoming.wire_size > self._limits.head + (2 * self._limits.body if incoming.in_body else 0):
                self._refuse(413 if incoming.in_body else 431, "The request has too many bytes for its content.")

    def connection_lost(self, error: "Exception | None") -> None:
        self._last = True
        self._ahead.clear()
        self._release(self._held)
        self._server.forget(self)
        if self._answering:
            self._answering.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def overdue(self) -> None:
        """Ends the connection, with an answer if a request has begun."""
        if self._incoming and self._writable.is_set():
            self._refuse(408, "The request did not arrive in time.")
        else:
            self.cut()

    def leave(self) -> None:
        """Ends the connection unless a request has begun."""
        if not self._incoming and not self._answering:
            self._transport.close()

    def cut(self) -> None:
        self._last = True
        self._transport.abort()

    def on_message_begin(self) -> None:
        if not self._last:
            self._incoming = _Incoming()
            self._expect(self._limits.head_s)

    def on_url(self, url: bytes) -> None:
        if self._incoming:
            self._incoming.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not (incoming := self._incoming):
            return
        incoming.headers[name.lower()] = value
        incoming.header_count += 1
        incoming.header_size += len(name) + len(value)
        if incoming.header_count > self._limits.headers or incoming.header_size > self._limits.head:
            self._refuse(431, f"At most {self._limits.headers} headers of {self._limits.head} bytes are allowed.")

    def on_headers_complete(self) -> None:
        incoming, limits = self._incoming, self._limits
        if not incoming or self._parser.should_upgrade():  # `_ignore_upgrade` reads it again
            return
        incoming.in_body = True
        self._expect(limits.body_s)
        if len(incoming.url) > limits.head:
            self._refuse(414, f"The path has more than {limits.head} bytes.")
        elif int(incoming.headers.get(b"content-length", b"0")) > limits.body:
            self._refuse(413, f"The body has more than {limits.body} bytes.")
        elif incoming.headers.get(b"expect", b"").lower() == b"100-continue" and not self._answering:
            self._transport.write(CONTINUE)

    def on_body(self, part: bytes) -> None:
        if not self._incoming:
            return
        self._incoming.body += part
        self._held += len(part)
        self._server.held += len(part)
        if len(self._incoming.body) > self._limits.body:
            self._refuse(413, f"The body has more than {self._limits.body} bytes.")
        elif self._server.held > self._limits.held:
            self._refuse(503, "The bodies of other requests fill the memory.")

    def on_message_complete(self) -> None:
        incoming = self._incoming
        if not incoming or self._parser.should_upgrade():
            return
        if len(self._ahead) >= self._limits.ahead:
            self._refuse(400, f"At most {self._limits.ahead} requests may wait in a connection.")
            return
        request = HttpRequest(
            method=self._parser.get_method().decode("latin-1"),
            path=incoming.url.partition(b"?")[0].decode("latin-1"),
            headers=incoming.headers,
            body=bytes(incoming.body),
            keep_alive=self._parser.should_keep_alive() and self._parser.get_http_version() != "1.0",
        )
        self._incoming, self.due_s = None, inf
        self._last = not request.keep_alive
        self._answer(request)

    def _expect(self, seconds: float) -> None:
        self.due_s = self._loop.time() + seconds

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Reads a request again without its Upgrade header, which a server may ignore (RFC 9110, 7.8), then `rest`.

        llhttp treats the bytes after such a head as another protocol, so it would read a body as the next request.
        """
        incoming, method = self._incoming, self._parser.get_method()
        if not incoming:
            return
        if method == b"CONNECT":
            self._refuse(405, "CONNECT is not supported.")
            return
        headers = [b"%b: %b\r\n" % header for header in incoming.headers.items() if header[0] != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(b"%b %b HTTP/1.1\r\n%b\r\n%b" % (method, incoming.url, b"".join(headers), rest))

    def _refuse(self, status: int, sentence: str) -> None:
        """Answers with an error, after the answers to earlier requests, and reads no more."""
        if self._incoming:
            self._release(len(self._incoming.body))
        self._last, self._incoming, self.due_s = True, None, inf
        self._answer(self._server.refuse(status, sentence))

    def _answer(self, what: "HttpRequest | HttpResponse") -> None:
        if not self._answering:
            self._server.busy(self)
            self._answering = self._loop.create_task(self._answer_in_order(what))
            return
        self._ahead.append(what)
        if not self._transport.is_closing():
            self._transport.pause_reading()

    async def _answer_in_order(self, what: "HttpRequest | HttpResponse") -> None:
        while True:
            if isinstance(what, HttpResponse):  # the client gets time to read its error: closing would destroy it
                self._write(what, keep_alive=False)
                self._transport.write_eof()
                self._server.waits(self)
                self._expect(self._limits.linger_s)
                self._resume_reading()
                return
            response = await self._server.respond(what)
            self._release(len(what.body))
            keep_alive = what.keep_alive and self._server.keeps_alive
            self._write(response, keep_alive, what)
            if not keep_alive:
                self._last = True
                self._transport.close()
                return
            if not self._writable.is_set():
                self._server.waits(self)
                self._expect(self._limits.write_s)
                await self._writable.wait()
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

    def _write(self, response: HttpResponse, keep_alive: bool, request: "HttpRequest | None" = None) -> None:
        lines = [
            STATUS_LINES[response.status],
            b"Content-Type: %b\r\nContent-Length: %d\r\n" % (response.content_type.encode(), len(response.body)),
        ]
        lines += [f"{name}: {value}\r\n".encode() for name, value in response.headers.items()]
        if not keep_alive:
            lines.append(b"Connection: close\r\n")
        lines.append(b"\r\n")
        if not request or request.method != "HEAD":
            lines.append(response.body)
        self._transport.write(b"".join(lines))

    def _resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _release(self, size: int) -> None:
        self._held -= size
        self._server.held -= size


class NeuronHttpServer:
    """Accepts connections up to their limit, ends slow ones, and drains.

    `respond` answers a request and raises nothing. `refuse` returns the answer to an unreadable request.
    """

    def __init__(self, respond: Respond, refuse: Refuse, limits: HttpLimits) -> None:
        self.respond = respond
        self.refuse = refuse
        self.limits = limits
        self.keeps_alive = True
        self.held = 0  # bytes of bodies without an answer
        self.open: set[ClientConnection] = set()
        self._waiting: dict[ClientConnection, None] = {}  # for their clients, the longest wait first
        self._listening: asyncio.AbstractServer | None = None
        self._checking: asyncio.Task[None] | None = None
        self._empty = asyncio.Event()

    async def listen(self, listener: socket.socket) -> None:
        """Accepts connections and takes over `listener`, which is bound."""
        loop = asyncio.get_running_loop()
        self._checking = loop.create_task(self._check())
        self._listening = await loop.create_server(lambda: ClientConnection(self), sock=listener, backlog=BACKLOG)

    async def drain(self, seconds: float) -> None:
        """Accepts no more, answers requests that have begun, and cuts the others after `seconds`."""
        self.keeps_alive = False
        if self._listening:
            self._listening.close()
        for connection in list(self._waiting):
            connection.leave()
        self._empty.clear()
        if self.open:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._empty.wait(), seconds)
        for connection in list(self.open):
            connection.cut()
        if self._checking:
            self._checking.cancel()

    def end_overdue(self, now_s: float) -> None:
        """Ends the connections whose time is over at `now_s` of the loop's clock."""
        for connection in [each for each in self.open if each.due_s <= now_s]:
            connection.overdue()

    def admit(self, connection: ClientConnection) -> bool:
        if len(self.open) >= self.limits.connections:
            if not self._waiting:
                return False
            longest = next(iter(self._waiting))
            self.forget(longest)
            longest.cut()
        self.open.add(connection)
        self._waiting[connection] = None
        return True

    def forget(self, connection: ClientConnection) -> None:
        self.open.discard(connection)
        self._waiting.pop(connection, None)
        if not self.open:
            self._empty.set()

    def busy(self, connection: ClientConnection) -> None:
        self._waiting.pop(connection, None)

    def waits(self, connection: ClientConnection) -> None:
        if connection in self.open:
            self._waiting[connection] = None

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            self.end_overdue(asyncio.get_running_loop().time())


def bind(host: str, port: int) -> socket.socket:
    """Returns a socket that can share its port and does not listen yet. Raises OSError if the port is taken."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
    bound.bind((host, port))
    return bound


def limits() -> HttpLimits:
    """Raises the process's limit of file descriptors to its maximum, and returns limits below it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most == resource.RLIM_INFINITY:
        return HttpLimits()
    # A replaced connection closes a little later than the new one is accepted.
    return replace(HttpLimits(), connections=max(1, min(HttpLimits.connections, (most - OTHER_DESCRIPTORS) // 2)))
