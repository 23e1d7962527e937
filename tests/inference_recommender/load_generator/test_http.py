"""HTTP as the generator speaks it: where an answer ends, and connections that end.

A server may hang up, hang, talk out of turn, or not be there. Connections run in virtual time.
"""

import gc
import weakref
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.load_generator import http
from inference_recommender.load_generator.http import MOST_ANSWER_BYTES, BadAnswer, ParsedAnswer, whole_head
from inference_recommender.load_generator.load_run import DRAIN_S
from inference_recommender.load_generator.loops import BACKLOG_S
from inference_recommender.load_generator.plan import Arrivals, TrafficPattern
from inference_recommender.load_generator.traffic import arrival_times
from tests.inference_recommender.load_generator.virtual_run import START_S, drive, users
from tests.virtual_time import Network, Peer, Request, answering, http_answer


def _answer(*headers: str, body: bytes = b"", status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode() + body


@pytest.mark.parametrize("name", ["Content-Length", "content-length", "CONTENT-LENGTH"])
def test_a_whole_head_tells_the_length_however_its_header_is_spelt(name: str) -> None:
    data = _answer("Content-Type: application/json", f"{name}: 5", body=b"12345")
    assert whole_head(data) == (len(data), True)


def test_a_connection_that_the_server_will_close_is_recognised() -> None:
    data = _answer("Connection: close", "Content-Length:2", body=b"{}")
    assert whole_head(data) == (len(data), False)


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


@given(st.binary(max_size=400), st.sampled_from(["Content-Length", "content-length"]), st.booleans())
def test_both_ways_find_the_same_end(body: bytes, name: str, closing: bool) -> None:
    data = _answer("Server: x", f"{name}: {len(body)}", *(["Connection: close"] if closing else []), body=body)
    parsed = ParsedAnswer()
    parsed.feed(data)
    assert parsed.complete
    assert (parsed.status, parsed.body) == (200, body[:300])
    assert whole_head(data) == (len(data), parsed.keep_alive)


def test_the_parser_waits_for_the_answer_behind_a_continue() -> None:
    parsed = ParsedAnswer()
    parsed.feed(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert not parsed.complete
    parsed.feed(_answer("Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\n\r\n"))
    assert (parsed.complete, parsed.status, parsed.body) == (True, 200, b"{}")


CHUNKED = _answer("Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        (
            [_answer("Transfer-Encoding: chunked"), *[b"100000\r\n" + bytes(1 << 20) + b"\r\n"] * 65],
            "is larger than 64 MiB",
        ),
        ([b"HTTP/1.1 200 OK\r\nX: ", *[b"x" * 8192] * 9], "has more than 64 KiB of headers"),
        ([b"HTTP/1.1 200 OK\r\n", *[b"X: 1\r\n" * 2000] * 9], "has more than 64 KiB of headers"),
    ],
)
def test_an_answer_without_end_is_refused_and_not_kept(pieces: list[bytes], why: str) -> None:
    parsed = ParsedAnswer()

    def feed() -> None:
        for piece in pieces:
            parsed.feed(piece)

    with pytest.raises(BadAnswer) as bad:
        feed()
    assert str(bad.value) == f"its answer {why}"
    assert len(parsed.body) <= 600


@pytest.mark.parametrize("more", [CHUNKED, b"HTTP/1.1 2", b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED])
def test_what_follows_an_answer_at_once_is_no_part_of_it(more: bytes) -> None:
    with pytest.raises(BadAnswer) as bad:
        ParsedAnswer().feed(CHUNKED + more)
    assert str(bad.value) == "it sends more than an answer to each request"


def test_a_server_that_asks_for_another_protocol_is_refused() -> None:
    with pytest.raises(BadAnswer) as bad:
        ParsedAnswer().feed(_answer("Upgrade: h2c", "Connection: Upgrade", status="101 Switching Protocols"))
    assert str(bad.value) == "it asks for another protocol"


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
    rows = virtual.run.records.rows()
    assert virtual.ended == "traffic ended"
    assert rows.errors == 0
    assert len(rows.succeeded) == virtual.network.connections == pytest.approx(100, abs=1)


def test_a_server_that_hangs_up_between_requests_has_not_failed() -> None:
    def serve(request: Request, peer: Peer) -> None:
        peer.send(OK, after_s=0.01)
        peer.hang_up(after_s=0.02)

    virtual = drive(Arrivals(invocations_per_minute=60, duration_in_seconds=20, connections=1, seed=1), serve)
    assert virtual.ended == "traffic ended"
    assert virtual.run.records.rows().errors == 0
    assert virtual.network.connections == len(virtual.run.records) + 1


def test_a_connection_that_breaks_before_the_answer_is_a_failed_request() -> None:
    def serve(request: Request, peer: Peer) -> None:
        peer.send(OK[:-1], after_s=0.01)
        peer.hang_up(after_s=0.02)

    virtual = drive(ONE_USER, serve, window_s=0.25)
    rows = virtual.run.records.rows()
    assert virtual.ended == "target failed: the connection was closed"
    assert rows.errors == len(rows.succeeded) == 5, "20 ms each and 100 ms until the next attempt, in two windows"


@pytest.mark.parametrize("answer", [OK + OK, OK + b"x"])
def test_a_server_that_talks_out_of_turn_has_failed(answer: bytes) -> None:
    virtual = drive(ONE_USER, lambda request, peer: peer.send(answer, after_s=0.01), window_s=0.25)
    assert virtual.ended == "target failed: it sends more than an answer to each request"


def test_a_server_that_does_not_speak_http_has_failed() -> None:
    virtual = drive(ONE_USER, lambda request, peer: peer.send(b"SSH-2.0-OpenSSH_9.2\r\n"), window_s=0.25)
    assert virtual.ended.startswith("target failed: its answer is not HTTP: ")


def test_an_answer_in_pieces_is_one_answer() -> None:
    pieces = [OK[at : at + 7] for at in range(0, len(OK), 7)]

    def serve(request: Request, peer: Peer) -> None:
        for number, piece in enumerate(pieces, start=1):
            peer.send(piece, after_s=number / 1000)

    virtual = drive(ONE_USER, serve)
    rows = virtual.run.records.rows()
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
    "traffic", [ONE_USER, Arrivals(invocations_per_minute=1200, duration_in_seconds=1, connections=2)]
)
def test_requests_that_are_never_answered_are_kept_as_unfinished(traffic: TrafficPattern | Arrivals) -> None:
    virtual = drive(traffic, lambda request, peer: None)
    records = virtual.run.records
    assert virtual.ended.startswith("target failed: server answered nothing for ")
    assert len(records) == 0
    expected = arrival_times(traffic) if isinstance(traffic, Arrivals) else [0.0]
    assert sorted(records.unfinished_intended_s()) == pytest.approx(expected, abs=1e-6)
    waited_s = virtual.loop.time() - START_S - 1
    backlog_s = BACKLOG_S if isinstance(traffic, Arrivals) else 0
    assert waited_s == pytest.approx(DRAIN_S + backlog_s, abs=0.03), "what drains is waited for, not for ever"
