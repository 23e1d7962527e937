"""The load generator against servers whose answers are garbled, in pieces, too long, too late or missing.

In virtual time. Every run ends, each request that was sent is a row or unfinished, once, and no callback raises.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.load_generator.http import SWEEP_S
from inference_recommender.load_generator.http_answer import (
    MOST_HEAD_BYTES,
    BadAnswer,
    ParsedAnswer,
    whole_head,
)
from inference_recommender.load_generator.load_plan import Arrivals, StoppingConditions, TrafficPattern, arrival_times
from inference_recommender.load_generator.load_run import DRAIN_S, Run
from tests.fuzz import examples
from tests.inference_recommender.load_generator.virtual_run import outgoing_of, plan_of, users
from tests.virtual_time import Network, Peer, Request, VirtualLoop

TIMEOUT_S = 0.5
SECONDS = 2

MOST_REQUESTS = 300
"""From then on the server is silent: forty answers to each request would be forty requests more, and so on."""

LENGTHS = st.sampled_from([*b"0 2 3 -1 +2 2_0 0x2".split(), b"", b" 2", b"2 ", b"2, 2", b"9" * 9, b"9" * 5000, b"\xb2"])
OPTIONS = b"Transfer-Encoding Connection Upgrade Trailer Keep-Alive".split()
CODINGS = [*b"chunked close keep-alive Upgrade h2c".split(), b"gzip, chunked", b"keep-alive, close"]
HEADERS = st.one_of(
    st.tuples(st.sampled_from([b"Content-Length", b"content-length", b"Content-Length "]), LENGTHS),
    st.tuples(st.sampled_from(OPTIONS), st.sampled_from(CODINGS)),
    st.tuples(st.sampled_from([b"X", b"", b" ", b"X\x00", b"Content-Type"]), st.binary(max_size=20)),
)
STATUS = st.sampled_from(
    [
        *(b"HTTP/1.1 %d OK" % status for status in (100, 101, 200, 204, 304, 400, 500, 999)),
        *(b"HTTP/1.1 2000 OK", b"HTTP/1.1 20", b"HTTP/1.1 200", b"HTTP/1.0 200 OK", b"HTTP/2 200", b"http/1.1 200 ok"),
        *(b"HTTP/1.1  200 OK", b"200 OK", b"", b"\r\n\r\nHTTP/1.1 200 OK", b"SSH-2.0-OpenSSH_9.2", b"\x16\x03\x01"),
    ]
)
BODIES = [
    *(b"", b"{}", b"{}x", b"2\r\n{}\r\n0\r\n\r\n", b"2\r\n{}\r\n", b"2\r\n{}0\r\n\r\n", b"-2\r\n{}\r\n", b"zz\r\n"),
    *(b"ffffffffffffffffff\r\n{}", b"0\r\nX: 1\r\n\r\n", b"1;" + b"x" * 500 + b"\r\n{", b"0\r\n\r\n0\r\n\r\n"),
    *(b"1\r\n{\r\n" * 50, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
]
BODY = st.sampled_from(BODIES) | st.binary(max_size=40)
ENDS = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b""])


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Returns bytes that are an answer, nearly one, or something else."""
    end = draw(ENDS)
    lines = [draw(STATUS), *(name + b": " + value for name, value in draw(st.lists(HEADERS, max_size=4)))]
    data = end.join(lines) + end + end + draw(BODY)
    if draw(st.integers(0, 9)) == 0:
        data = b"HTTP/1.1 200 OK\r\nX: " + b"x" * draw(st.sampled_from([100, MOST_HEAD_BYTES, 300_000])) + data
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 3)) == 0 else data


@dataclass(frozen=True)
class Act:
    """The behaviour of a server on one request."""

    data: bytes
    pieces: int
    every_s: float
    hangs_up: bool
    repeats: int

    def __call__(self, request: Request, peer: Peer) -> None:
        at_s = self.every_s
        size = max(-(-len(self.data) // self.pieces), 1)
        for _ in range(self.repeats):
            for start in range(0, len(self.data), size):
                peer.send(self.data[start : start + size], after_s=at_s)
                at_s += self.every_s
        if self.hangs_up:
            peer.hang_up(after_s=at_s)


GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
ACTS = st.builds(
    Act,
    data=st.one_of(st.just(GOOD), st.just(b""), answers()),
    pieces=st.sampled_from([1, 1, 2, 7, 50]),
    every_s=st.sampled_from([0.01, 0.02, 0.3]),
    hangs_up=st.booleans(),
    repeats=st.sampled_from([1, 1, 1, 2, 40]),
)
TRAFFIC: list[TrafficPattern | Arrivals] = [
    users((3, 1), (1, SECONDS - 1)),
    Arrivals(invocations_per_minute=2400, duration_in_seconds=SECONDS, connections=3),
]


@pytest.mark.parametrize("traffic", TRAFFIC)
@given(acts=st.lists(ACTS, min_size=1, max_size=5))
@examples(25)
def test_every_request_is_counted_once(traffic: TrafficPattern | Arrivals, acts: list[Act]) -> None:
    def serve(request: Request, peer: Peer) -> None:
        if len(network.requests) < MOST_REQUESTS:
            acts[len(network.requests) % len(acts)](request, peer)

    network = Network(serve)
    loop = VirtualLoop(network)
    raised: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: raised.append(context))
    plan = plan_of(
        traffic,
        request_timeout_s=TIMEOUT_S,
        window_s=0.5,
        stopping_conditions=StoppingConditions(flat_invocations="Continue"),
    )
    run = Run(plan, outgoing_of(plan), lambda window: None, loop.clock())
    began = loop.time()
    ended = loop.run(run.drive())
    assert raised == []
    assert ended == "traffic ended" or ended.startswith("target failed: ")
    assert loop.time() - began < SECONDS + DRAIN_S + 2

    rows, unfinished = run.log.requests(), len(run.log.requests().unfinished_intended_s)
    assert len(rows.succeeded) == int(rows.succeeded.sum()) + rows.errors
    assert rows.latencies_ms.max(initial=0) <= (TIMEOUT_S + SWEEP_S) * 1000 + 1e-6
    if isinstance(traffic, Arrivals):
        due = arrival_times(traffic)
        assert len(rows.succeeded) + unfinished == (due < run.duration_s).sum()
        assert len(network.requests) >= len(rows.succeeded)
    else:
        assert len(rows.succeeded) + unfinished == len(network.requests)


@given(data=answers())
@examples(200)
def test_both_ways_to_read_an_answer_agree(data: bytes) -> None:
    """Where the head alone gives the length, httptools finds no other end, and says the same of the connection.

    It may refuse the answer for something else that is odd in its head.
    """
    told = whole_head(data)
    if told is None or told[0] > 10_000:
        return
    length, keep_alive = told
    parsed = ParsedAnswer()
    with suppress(BadAnswer):
        parsed.feed(data[:length].ljust(length, b"x"))
        assert (parsed.complete, parsed.status, parsed.keep_alive) == (True, 200, keep_alive)
