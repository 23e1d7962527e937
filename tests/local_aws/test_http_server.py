"""Slow, silent and malformed callers cost a bounded share of the server, and never keep out one that asks."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from local_aws.server import ConnectionLimits, LimitedServer, listening_sockets
from tests.local_aws.conftest import wait_until
from tests.local_aws.wsgi_calls import Spy

PATIENCE_S = 60.0
"""Bounds a hanging test."""
NEVER_S = 600.0


def unread(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


@contextlib.contextmanager
def serving(application: Any, **limits: Any) -> Iterator[LimitedServer]:
    bound = listening_sockets(0)[:1]
    server = LimitedServer(
        bound[0], application, ConnectionLimits(**{"headers_s": NEVER_S, "request_s": NEVER_S, **limits})
    )
    bound[0].close()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def connected(server: LimitedServer, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(server.server_address[:2], PATIENCE_S)  # type: ignore[arg-type]
    connection.sendall(sent)
    return connection


def asked(server: LimitedServer) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        return connection.getresponse().status


def all_of(connection: socket.socket) -> bytes:
    with connection, contextlib.suppress(ConnectionResetError):
        return b"".join(iter(lambda: connection.recv(65536), b""))
    return b""


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: loc"], ids=["nothing", "half", "headers"])
def test_a_caller_that_never_finishes_its_headers_is_cut_off(sent: bytes) -> None:
    spy = Spy()
    with serving(spy, headers_s=0.1) as server:
        assert all_of(connected(server, sent)) == b""
    assert spy.environs == []


def test_bytes_that_trickle_in_do_not_move_the_deadline() -> None:
    with serving(unread, headers_s=0.3) as server:
        connection = connected(server, b"GET / HTTP/1.1\r\n")
        stopped = threading.Event()

        def trickle() -> None:
            with contextlib.suppress(OSError):
                while not stopped.wait(0.02):
                    connection.sendall(b"a")

        thread = threading.Thread(target=trickle)
        thread.start()
        assert all_of(connection) == b""
        stopped.set()
        thread.join()


def test_a_body_that_never_comes_is_told_to_the_application() -> None:
    seen = list[Exception]()

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        try:
            environ["wsgi.input"].read(10)
        except TimeoutError as error:
            seen.append(error)
        start_response("408 Request Timeout", [("Content-Length", "0")])
        return []

    with serving(application, request_s=0.1) as server:
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nfive "
        assert all_of(connected(server, head)).startswith(b"HTTP/1.1 408 ")
    assert len(seen) == 1


def test_silent_callers_make_room_for_one_that_asks() -> None:
    with serving(unread, connections=4) as server:
        silent = [connected(server) for _ in range(12)]
        assert asked(server) == 200
        # The oldest were cut off; the latest are still there, up to the bound.
        assert [connection.recv(1) for connection in silent[:8]] == [b""] * 8
        for connection in silent:
            connection.close()


def test_a_call_at_work_is_not_cut_off_and_one_too_many_is_told_to_come_again() -> None:
    working, gate = threading.Semaphore(0), threading.Event()

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        working.release()
        gate.wait(PATIENCE_S)
        start_response("200 OK", [("Content-Length", "4")])
        return [b"done"]

    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(application, connections=2) as server:
        at_work = [connected(server, request) for _ in range(2)]
        assert all(working.acquire(timeout=PATIENCE_S) for _ in at_work)
        assert all_of(connected(server)).startswith(b"HTTP/1.1 503 ")
        gate.set()
        assert [all_of(connection)[-4:] for connection in at_work] == [b"done", b"done"]
        wait_until(lambda: asked(server) == 200, every_s=0.01)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [(b"GET http://[/ HTTP/1.1", 400), (b"OPTIONS * HTTP/1.1", 400), (b"GET / HTTP/9.9", 505), (b"GET", 400)],
)
def test_a_malformed_request_is_refused_without_a_word_in_the_log(
    request_line: bytes, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    spy = Spy()
    with serving(spy) as server:
        answer = all_of(connected(server, request_line + b"\r\nHost: localhost\r\n\r\n"))
    assert f" {status} ".encode() in answer or b"Error code: 400" in answer  # an HTTP/0.9 request gets no status line
    assert spy.environs == []
    assert capfd.readouterr().err == ""


def test_two_content_lengths_reach_the_application_as_none_that_it_can_read() -> None:
    spy = Spy()
    with serving(spy) as server:
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n"
        connection = connected(server, head)
        connection.shutdown(socket.SHUT_WR)
        all_of(connection)
    assert spy.environs[0]["CONTENT_LENGTH"] == "2, 3"
