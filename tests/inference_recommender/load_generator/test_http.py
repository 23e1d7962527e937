"""Where an HTTP answer ends: the quick way and httptools' way agree wherever the quick way dares."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.load_generator.answer import ParsedAnswer, whole_head


def _answer(*headers: str, body: bytes = b"", status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode() + body


@pytest.mark.parametrize("name", ["Content-Length", "content-length", "CONTENT-LENGTH"])
def test_a_whole_head_tells_the_length_however_its_header_is_spelt(name: str) -> None:
    data = _answer("Content-Type: application/json", f"{name}: 5", body=b"12345")
    assert whole_head(data) == (len(data), True)


def test_a_server_that_hangs_up_is_heard() -> None:
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
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"",
        b"SSH-2.0-OpenSSH_9.2",
    ],
)
def test_what_these_bytes_do_not_tell_is_left_to_the_parser(data: bytes) -> None:
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
