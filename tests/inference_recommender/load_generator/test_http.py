"""HTTP as the generator speaks it: where an answer ends, and connections that end.

A server may hang up, hang, talk out of turn, or not be there. Connections run in virtual time.
"""

import gc
import weakref
from collections import deque
from contextlib import suppress

import pytest

from inference_recommender.load_generator import http
from inference_recommender.load_generator.http_answer import MOST_ANSWER_BYTES, BadAnswer, ParsedAnswer, whole_head
from inference_recommender.load_generator.load_plan import Arrivals, TrafficPattern
from tests.builders import message_of
from tests.inference_recommender.load_generator.virtual_run import START_S, drive, users
from tests.virtual_time import Network, Peer, Request, answering, http_answer


def _answer(*headers: str, body: bytes = b"", status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode() + body


@pytest.mark.parametrize(
    "data",
    [
        _answer("Content-Length: 2", body=b"no", status="500 Internal Server Error"),
        _answer("Content-Length: 2", status="100 Continue"),
        _answer("Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\n\r\n"),
        _answer("Transfer-Encoding: chunked", "Content-Length: 3"),
        _answer("Content-Type: text/plain"),
        _answer("Content-Length: five"),
        _answer("Content-Length: -1"),
        _answer("Content-Length: 2")[:-1],
        _answer("Content-Length: +2", body=b"{}"),
        _answer("Content-Length: 1_0"),
        _answer("Content-Length: 2", "Content-Length: 3", body=b"{}"),
        _answer(f"Content-Length: {MOST_ANSWER_BYTES}"),
        _answer(f"Content-Length: {'9' * 5000}"),
        _answer("Content-Length: 2", "Connection: keep-alive, close", body=b"{}"),
        _answer("Content-Length: 2", body=b"{}", status="2000 OK"),
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"",
        b"SSH-2.0-OpenSSH_9.2",
    ],
)
def test_an_answer_that_these_bytes_alone_do_not_tell_is_left_to_the_parser(data: bytes) -> None:
    assert whole_head(data) is None


def test_the_parser_waits_for_the_answer_behind_a_continue() -> None:
    parsed = ParsedAnswer()
    parsed.feed(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert not parsed.complete
    parsed.feed(_answer("Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\n\r\n"))
    assert (parsed.complete, parsed.status, parsed.body) == (True, 200, b"{}")


CHUNKED = _answer("Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\n\r\n")


@pytest.mark.parametrize("answer", [CHUNKED, b"no HTTP"])
def test_an_answer_that_was_read_leaves_nothing_to_collect(answer: bytes) -> None:
    """A run has no garbage collection, and may have tens of millions of chunked answers."""
    gc.disable()
    try:
        parsed = ParsedAnswer()
        with suppress(BadAnswer):
            parsed.feed(answer)
        gone = weakref.ref(parsed)
        del parsed
        assert gone() is None
    finally:
        gc.enable()


ONE_USER = users((1, 1))
OK = http_answer()


def test_a_server_that_hangs_up_after_every_answer_is_called_again_at_once() -> None:
    def serve(request: Request, peer: Peer) -> None:
        peer.send(http_answer(b"{}", 200, "Connection: close"), after_s=0.01)

    virtual = drive(ONE_USER, serve)
    rows = virtual.run.log.requests()
    assert virtual.ended == "traffic ended"
    assert rows.errors == 0
    assert len(rows.succeeded) == virtual.network.connections == pytest.approx(100, abs=1)


def test_a_server_that_hangs_up_between_requests_has_not_failed() -> None:
    def serve(request: Request, peer: Peer) -> None:
        peer.send(OK, after_s=0.01)
        peer.hang_up(after_s=0.02)

    virtual = drive(Arrivals(invocations_per_minute=60, duration_in_seconds=20, connections=1, seed=1), serve)
    assert virtual.ended == "traffic ended"
    assert virtual.run.log.requests().errors == 0
    assert virtual.network.connections == len(virtual.run.log) + 1


LOW_RATE = Arrivals(invocations_per_minute=60, duration_in_seconds=8, connections=8, seed=1)


def test_one_failed_request_at_a_low_rate_does_not_end_the_run() -> None:
    """Windows without a request, after an error, are no proof of a dead target."""

    def serve(request: Request, peer: Peer) -> None:
        if len(virtual_requests) == 0:
            virtual_requests.append(request)
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
            peer.hang_up(after_s=0.01)
        else:
            peer.send(OK, after_s=0.01)

    virtual_requests: list[Request] = []
    arrivals = Arrivals(invocations_per_minute=12, duration_in_seconds=60, connections=2, seed=2)
    virtual = drive(arrivals, serve)
    assert (virtual.ended, virtual.run.log.requests().errors) == ("traffic ended", 1)


@pytest.mark.parametrize("traffic", [LOW_RATE, users((4, 8))])
def test_a_server_that_closes_each_connection_at_once_has_failed(traffic: Arrivals | TrafficPattern) -> None:
    network = Network(answering(), on_connect=lambda peer: peer.hang_up())
    virtual = drive(traffic, answering(), network=network)
    assert virtual.ended in (
        "target failed: server closes connections before a request",
        "target failed: the connection was closed",
    )
    assert virtual.run.duration_s == pytest.approx(2)
    assert network.connections <= 8 * (2 / http.RECONNECT_S + 2), "the generator waits between two attempts"


def test_a_connection_that_breaks_before_the_answer_is_a_failed_request() -> None:
    def serve(request: Request, peer: Peer) -> None:
        peer.send(OK[:-1], after_s=0.01)
        peer.hang_up(after_s=0.02)

    virtual = drive(ONE_USER, serve, window_s=0.25)
    rows = virtual.run.log.requests()
    assert virtual.ended == "target failed: the connection was closed"
    assert rows.errors == len(rows.succeeded) == 5, "20 ms each and 100 ms until the next attempt, in two windows"


def test_an_answer_in_pieces_is_one_answer() -> None:
    pieces = [OK[at : at + 7] for at in range(0, len(OK), 7)]

    def serve(request: Request, peer: Peer) -> None:
        for number, piece in enumerate(pieces, start=1):
            peer.send(piece, after_s=number / 1000)

    virtual = drive(ONE_USER, serve)
    rows = virtual.run.log.requests()
    assert virtual.ended == "traffic ended"
    assert rows.errors == 0
    assert rows.latencies_ms == pytest.approx(len(pieces)), "its end is the end of its last piece"


def test_a_server_that_refuses_connections_is_tried_again_every_tenth_of_a_second() -> None:
    network = Network(answering())
    network.serve = None
    virtual = drive(users((1, 60)), answering(), network=network, window_s=0.5)
    assert virtual.ended == "target failed: server refuses connections (Connection refused)"
    attempts_s = [second - START_S for second in network.attempts_s[:10]]
    assert attempts_s == pytest.approx([number / 10 for number in range(10)])
    assert len(virtual.windows) == 2


def test_a_server_that_accepts_no_connection_is_given_up_after_five_seconds() -> None:
    network = Network(answering())
    network.accepts = False
    virtual = drive(users((1, 60)), answering(), network=network, window_s=2.0)
    assert virtual.ended == "target failed: server accepts no connection within 5 s"
    assert network.attempts_s[1] - network.attempts_s[0] == pytest.approx(http.CONNECT_TIMEOUT_S + http.RECONNECT_S)


@pytest.mark.parametrize(
    ("headers", "keep_alive"),
    [
        (("Content-Type: application/json", "Content-Length: 5"), True),
        (("content-length: 5",), True),
        (("Connection: close", "CONTENT-LENGTH:5"), False),
    ],
)
def test_a_whole_head_has_the_length_however_its_header_is_spelt(headers: tuple[str, ...], keep_alive: bool) -> None:
    data = _answer(*headers, body=b"12345")
    assert whole_head(data) == (len(data), keep_alive)


MORE = "it sends more than an answer to each request"
TOO_LONG = [_answer("Transfer-Encoding: chunked"), *[b"100000\r\n" + bytes(1 << 20) + b"\r\n"] * 65]


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        (TOO_LONG, "its answer is larger than 64 MiB"),
        ([b"HTTP/1.1 200 OK\r\nX: ", *[b"x" * 8192] * 9], "its answer has more than 64 KiB of headers"),
        ([b"HTTP/1.1 200 OK\r\n", *[b"X: 1\r\n" * 2000] * 9], "its answer has more than 64 KiB of headers"),
        ([CHUNKED + CHUNKED], MORE),
        ([CHUNKED + b"HTTP/1.1 2"], MORE),
        ([CHUNKED + b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED], MORE),
        ([_answer("Upgrade: h2c", "Connection: Upgrade", status="101 Switching")], "it asks for another protocol"),
    ],
)
def test_an_answer_without_end_or_with_more_is_refused_and_not_kept(pieces: list[bytes], why: str) -> None:
    parsed = ParsedAnswer()
    assert message_of(BadAnswer, deque, map(parsed.feed, pieces)) == why
    assert len(parsed.body) <= 600


@pytest.mark.parametrize(
    ("answer", "why"), [(OK + OK, MORE), (OK + b"x", MORE), (b"SSH-2.0-OpenSSH_9.2\r\n", "its answer is not HTTP: ")]
)
def test_a_server_that_talks_out_of_turn_or_no_http_has_failed(answer: bytes, why: str) -> None:
    virtual = drive(ONE_USER, lambda request, peer: peer.send(answer, after_s=0.01), window_s=0.25)
    assert virtual.ended.startswith(f"target failed: {why}")
