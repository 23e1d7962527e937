"""The contract of both HTTP servers of this project: slow, silent, large and malformed clients.

They take a bounded share of the server, get a 4xx or the end of their connection, and keep no other client out.
"""

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import httptools
import pytest

from containers.neuron import http_server
from containers.neuron.application import ErrorResponses
from containers.neuron.http_server import HttpLimits, HttpRequest, HttpResponse, NeuronHttpServer
from local_aws.server import ConnectionLimits, LimitedServer, listening_sockets
from tests.local_aws.conftest import wait_until
from tests.local_aws.wsgi_calls import guarded, signed_headers

HANGS_S = 60.0
NEVER_S = 600.0
BODY, HEAD, MEMORY = 1000, 16_384, 1500
"""Limits in bytes: of one body, of the headers (the account's are fixed and larger), and of all bodies together."""


@dataclass
class Application:
    """Remembers the bodies of requests, and answers each once `gate` is open."""

    bodies: list[bytes] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def answer(self, body: bytes) -> bytes:
        self.bodies.append(body)
        assert self.gate.wait(HANGS_S)
        return b"answer"

    async def respond(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, await asyncio.to_thread(self.answer, request.body), "text/plain")

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        content = self.answer(environ["wsgi.input"].read())
        start_response("200 OK", [("Content-Length", str(len(content)))])
        return [content]


@dataclass
class Server:
    application: Application
    port: int
    headers: Callable[[bytes], Mapping[str, str]]
    """Returns the headers that a request with this body needs, besides those of the test."""
    connections: ExitStack = field(default_factory=ExitStack)

    def connect(self, sent: bytes = b"") -> socket.socket:
        connection = self.connections.enter_context(socket.create_connection(("127.0.0.1", self.port), HANGS_S))
        with contextlib.suppress(OSError):  # refused before all of it is sent
            connection.sendall(sent)
        return connection

    def post(self, body: bytes, head: str | None = None, wire: bytes | None = None) -> bytes:
        """Returns a request. `head` replaces its length, `wire` the bytes of its body."""
        lines = [f"{name}: {value}" for name, value in self.headers(body).items()]
        length = f"Content-Length: {len(body)}" if head is None else head
        top = "\r\n".join(["POST /a HTTP/1.1", *lines, *([length] if length else []), "", ""])
        return top.encode() + (body if wire is None else wire)

    def statuses(self, sent: bytes) -> list[int]:
        return statuses(everything(self.connect(sent)))


def everything(connection: socket.socket) -> bytes:
    """Returns what a connection gets until the server ends it."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            received += piece
    return received


def statuses(received: bytes) -> list[int]:
    if not received.startswith(b"HTTP/"):  # Python's server answers what it takes for HTTP/0.9 with a page
        return [int(status) for status in re.findall(rb"Error code: (\d+)", received)]
    found: list[int] = []

    class Parser:
        def on_message_complete(self) -> None:
            found.append(parser.get_status_code())

    parser = httptools.HttpResponseParser(Parser())
    parser.feed_data(received)
    return found


@contextlib.contextmanager
def neuron_server(connections: int, seconds: float, idle_s: float) -> Iterator[Server]:
    application, loop = Application(), asyncio.new_event_loop()
    sizes = HttpLimits(body=BODY, head=HEAD, held=MEMORY, connections=connections)
    limits = replace(sizes, head_s=seconds, body_s=seconds, idle_s=idle_s, linger_s=0.1)
    server = NeuronHttpServer(application.respond, ErrorResponses(lambda line: None).answer, limits)
    listener = http_server.bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.listen(listener), loop).result(HANGS_S)
        yield Server(application, port, lambda body: {})
    finally:
        application.gate.set()
        asyncio.run_coroutine_threadsafe(server.drain(1), loop).result(HANGS_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@contextlib.contextmanager
def account_server(connections: int, seconds: float, idle_s: float) -> Iterator[Server]:
    application, (listener, *others) = Application(), listening_sockets(0)
    guard = guarded(application, max_body_bytes=BODY, max_held_bytes=MEMORY)
    limits = ConnectionLimits(connections=connections, headers_s=min(seconds, idle_s), request_s=seconds, rest_s=0.1)
    server = LimitedServer(listener, guard, limits)
    for each in (listener, *others):
        each.close()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def headers(body: bytes) -> Mapping[str, str]:
        return {name: value for name, value in signed_headers("POST", "/a", body).items() if name != "Content-Length"}

    try:
        yield Server(application, server.port, headers)
    finally:
        application.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()


Start = Callable[..., Server]


@pytest.fixture(params=[neuron_server, account_server], ids=["neuron", "account"])
def start(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Returns a function that starts the server on a free port of loopback, with limits."""
    monkeypatch.setattr(http_server, "CHECK_S", 0.01)
    with ExitStack() as running:

        def started(connections: int = 16, seconds: float = NEVER_S, idle_s: float = NEVER_S) -> Server:
            server: Server = running.enter_context(request.param(connections, seconds, idle_s))
            running.enter_context(server.connections)
            return server

        yield started


CHUNKED = "Transfer-Encoding: chunked"


def test_a_body_arrives_whole_however_it_is_cut(start: Start) -> None:
    server, body = start(), bytes(97 + n % 26 for n in range(300))
    letters = b"".join(b"1\r\n%c\r\n" % letter for letter in body) + b"0\r\n\r\n"
    for sent in (server.post(body), server.post(body, CHUNKED, letters)):
        assert server.connect(sent).recv(12) == b"HTTP/1.1 200"
    assert server.application.bodies == [body, body]


def test_a_request_without_a_length_has_no_body(start: Start) -> None:
    server = start()
    assert server.statuses(server.post(b"", head="", wire=b"a body\r\n\r\n")) in ([200], [200, 400])
    assert server.application.bodies == [b""]


REFUSED: dict[str, tuple[Callable[[Server], bytes], set[int]]] = {
    "garbage": (lambda server: b"\x16\x03\x01 is no request\r\n\r\n", {400}),
    "no method": (lambda server: b"GET\r\nHost: localhost\r\n\r\n", {400}),
    "version": (lambda server: b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", {400, 505}),
    "path": (lambda server: b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", {414, 431}),
    "endless path": (lambda server: b"GET /" + b"x" * 700_000, {414, 431}),
    "header": (lambda server: b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 70_000 + b"\r\n\r\n", {431}),
    "headers": (lambda server: b"GET / HTTP/1.1\r\n" + b"A: 1\r\n" * 200 + b"\r\n", {431}),
    "endless header": (lambda server: b"GET / HTTP/1.1\r\nA: " + b"x" * 700_000, {431}),
    "body": (lambda server: server.post(b"x" * (BODY + 1)), {413}),
    "announced body": (lambda server: server.post(b"", f"Content-Length: {BODY + 1}"), {413}),
    "chunks": (lambda server: server.post(b"", CHUNKED, b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n"), {413}),
}


@pytest.mark.parametrize(("request_of", "allowed"), REFUSED.values(), ids=REFUSED)
def test_a_malformed_or_too_large_request_is_refused_and_ends_the_connection(
    request_of: Callable[[Server], bytes], allowed: set[int], start: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    server = start()
    [status] = server.statuses(request_of(server))
    assert status in allowed
    assert server.application.bodies == []
    assert capfd.readouterr().err == "", "a client could fill the log"


@pytest.mark.parametrize("target", ["http://[/", "*"])
def test_the_account_refuses_a_target_that_is_no_path(target: str) -> None:
    with account_server(16, NEVER_S, NEVER_S) as server:
        assert server.statuses(f"OPTIONS {target} HTTP/1.1\r\nConnection: close\r\n\r\n".encode()) == [400]


@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 5 5",
        "Content-Length: ٣",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: identity",
        "Transfer-Encoding:",
        "Transfer-Encoding : chunked",
        "A: b\nTransfer-Encoding: chunked\nContent-Length: 5",
        "A: b\r\n Transfer-Encoding: chunked\r\nContent-Length: +5",
    ],
)
def test_an_ambiguous_length_is_refused_and_nothing_after_it_is_read(head: str, start: Start) -> None:
    """Behind a load balancer, a second request in the body would count as another client's."""
    server = start()
    [status] = server.statuses(server.post(b"", head, b"0\r\n\r\n" + server.post(b"smuggled")))
    assert status == 400
    assert server.application.bodies == []


@pytest.mark.parametrize("sent", [b"GET / HT", b"GET / HTTP/1.1\r\nHost: loc"], ids=["request line", "headers"])
def test_a_client_that_does_not_finish_its_head_is_cut_off(sent: bytes, start: Start) -> None:
    server = start(seconds=0.1)
    assert everything(server.connect(sent))[:12] in (b"", b"HTTP/1.1 408")
    assert server.application.bodies == []


def test_a_client_that_does_not_finish_its_body_gets_408(start: Start) -> None:
    server = start(seconds=0.1)
    assert server.statuses(server.post(b"unfinished", wire=b"unfin")) == [408]
    assert server.application.bodies == []


def test_bytes_that_trickle_in_do_not_move_the_deadline(start: Start) -> None:
    connection = start(seconds=0.3).connect(b"GET / HTTP/1.1\r\nA: ")
    connection.settimeout(0.02)
    with contextlib.suppress(ConnectionError):
        for _ in range(int(HANGS_S / 0.02)):
            with contextlib.suppress(TimeoutError):
                assert connection.recv(65536)[:12] in (b"", b"HTTP/1.1 408")
                return
            connection.sendall(b"x")
        pytest.fail("the server waits for ever")


def test_a_connection_without_a_request_or_another_one_is_closed(start: Start) -> None:
    server = start(idle_s=0.1)
    assert everything(server.connect()) == b""
    assert server.statuses(server.post(b"1")) == [200]


def test_silent_connections_make_room_for_a_client_with_a_request(start: Start) -> None:
    server = start(connections=4)
    silent = [server.connect() for _ in range(12)]
    assert server.connect(server.post(b"1")).recv(12) == b"HTTP/1.1 200"
    assert [connection.recv(1) for connection in silent[:8]] == [b""] * 8, "the oldest make room"
    assert silent[-1].send(server.post(b"2"))
    assert silent[-1].recv(12) == b"HTTP/1.1 200"


def test_no_connection_that_waits_for_its_answer_is_closed_for_another(start: Start) -> None:
    server = start(connections=2)
    server.application.gate.clear()
    working = [server.connect(server.post(b"1")) for _ in range(2)]
    wait_until(lambda: len(server.application.bodies) == 2, HANGS_S, 0.01)
    refused = everything(server.connect())
    assert statuses(refused) == [503]
    assert b"retry-after: 1\r\n" in refused.lower()
    server.application.gate.set()
    assert [connection.recv(12) for connection in working] == [b"HTTP/1.1 200"] * 2


def test_the_bodies_of_all_clients_share_a_memory_limit(start: Start) -> None:
    server = start()
    server.application.gate.clear()
    first = server.connect(server.post(b"x" * 900))
    wait_until(lambda: len(server.application.bodies) == 1, HANGS_S, 0.01)
    assert server.statuses(server.post(b"x" * 901)) == [503]
    server.application.gate.set()
    assert first.recv(12) == b"HTTP/1.1 200"
    wait_until(lambda: server.connect(server.post(b"x" * 902)).recv(12) == b"HTTP/1.1 200", HANGS_S, 0.01)
