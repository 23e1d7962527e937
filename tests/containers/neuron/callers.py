"""Clients of the Neuron server's HTTP, in memory and in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import httptools

from containers.neuron.application import ErrorResponses
from containers.neuron.http_server import ClientConnection, HttpLimits, HttpRequest, HttpResponse, NeuronHttpServer
from tests.virtual_time import Network, VirtualLoop

T = TypeVar("T")
Respond = Callable[[HttpRequest], Awaitable[HttpResponse]]


def in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    return VirtualLoop(Network(lambda request, peer: None)).run(main)


async def echo(request: HttpRequest) -> HttpResponse:
    """Answers with the request's method, path and body."""
    return HttpResponse(200, b"%b %b %b" % (request.method.encode(), request.path.encode(), request.body), "text/plain")


def serve(respond: Respond = echo, limits: HttpLimits | None = None, log: list[str] | None = None) -> NeuronHttpServer:
    lines: list[str] = [] if log is None else log
    return NeuronHttpServer(respond, ErrorResponses(lines.append).answer, limits or HttpLimits())


@dataclass(frozen=True, kw_only=True)
class Heard:
    status: int
    body: bytes
    headers: dict[str, str]


class Caller(asyncio.Transport):
    """A client and the transport of its connection."""

    def __init__(self, server: NeuronHttpServer, *, reads: bool = True) -> None:
        super().__init__()
        self.closed = False
        self.ended = False
        self._written = bytearray()
        self._paused = False
        self._unsent = bytearray()
        self._connection = ClientConnection(server)
        self._connection.connection_made(self)
        if not reads:
            self._connection.pause_writing()

    # The client's side

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            if self._paused:
                self._unsent += piece
            elif not self.closed:
                self._connection.data_received(piece)

    @property
    def written(self) -> bytes:
        return bytes(self._written)

    @property
    def heard(self) -> list[Heard]:
        """Returns the answers so far. Raises `httptools.HttpParserError` if they are not HTTP."""
        answers = _Answers()
        answers.parser.feed_data(self.written)
        return answers.complete

    @property
    def statuses(self) -> list[int]:
        return [each.status for each in self.heard]

    # The transport's side

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.ended, "bytes after the end"
        if not self.closed:
            self._written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        unsent, self._unsent = bytes(self._unsent), bytearray()
        if unsent:
            asyncio.get_running_loop().call_soon(self.send, unsent)


class _Answers:
    def __init__(self) -> None:
        self.complete: list[Heard] = []
        self.parser = httptools.HttpResponseParser(self)
        self.on_message_begin()

    def on_message_begin(self) -> None:
        self._body, self._headers = b"", dict[str, str]()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, part: bytes) -> None:
        self._body += part

    def on_message_complete(self) -> None:
        status = self.parser.get_status_code()
        self.complete.append(Heard(status=status, body=self._body, headers=self._headers))


def post(body: bytes, *headers: str, path: str = "/invocations", version: str = "1.1") -> bytes:
    lines = [f"POST {path} HTTP/{version}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def get(path: str = "/ping", *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", *headers, "", ""]).encode()


async def settle() -> None:
    """Runs everything that needs no time."""
    for _ in range(20):
        await asyncio.sleep(0)


async def pass_time(server: NeuronHttpServer, seconds: float, step_s: float = 0.5) -> None:
    """Passes time. The server checks its connections every `step_s` seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        await asyncio.sleep(min(step_s, end - loop.time()))
        server.end_overdue(loop.time())
    await settle()
