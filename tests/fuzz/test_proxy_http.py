"""Callers that send anything, in any pieces, slowly, and hang up: the proxy bears them, and other callers never notice.

The same traces run in virtual time, where the slow ones cost nothing, and against the real program on loopback with a
stand-in for Triton that ends at the first request that the proxy should not have made.
"""

import contextlib
import json
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_aws.process.container_contract import BINARY
from local_aws.process.guarded_process import GuardedProcess
from local_aws.process.serve_model import plan_command
from tests.fuzz import examples
from tests.fuzz.stand_in_triton import HEAD
from tests.local_aws.process.proxied import KEY, MODEL, Proxied, answers, in_chunks, invocation, ping, request
from tests.virtual_time import answering
from workloads import ROOT

ECHO = answering(service_s=0.01, answer=lambda body: (200, body))
MAX_GROWTH_BYTES = 64 << 20
"""How much the proxy's process may grow under traces of at most some kilobytes each."""
GOOD = b'{"inputs": []}'

SEPARATORS = [b"\r\n", b"\n", b"\x00", b": "]

bodies = st.binary(max_size=300)
headers = st.sampled_from(
    [
        "Content-Type: application/json",
        f"Content-Type: {BINARY}2",
        f"Content-Type: {BINARY}99999999999999999999",
        "Content-Length: 0",
        "Content-Length: 5",
        "Content-Length: -5",
        "Content-Length: 99999999999",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: identity, chunked",
        "Connection: close",
        "Connection: upgrade",
        "Upgrade: websocket",
        "Expect: 100-continue",
        "Origin: null",
        "Host: evil.example",
        "X-Amzn-SageMaker-Target-Model: other",
        "Inference-Header-Content-Length: 3",
        "Content-Encoding: gzip",
        " folded",
        "No colon",
        "Empty:",
        "A: " + "a" * 17_000,
    ]
)
paths = st.sampled_from(
    [
        f"/{KEY}/invocations",
        f"/{KEY}/ping",
        "/ping",
        f"/{KEY}/models",
        f"/{KEY}/invocations?a=b",
        "/v2/repository/index",
        "*",
    ]
)
methods = st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "CONNECT", "TRACE", "G\x00T"])
messages = st.one_of(
    st.builds(lambda body, more: invocation(body, *more), bodies, st.lists(headers, max_size=3)),
    st.builds(lambda chunks: in_chunks(*chunks), st.lists(st.binary(min_size=1, max_size=20), max_size=8)),
    st.builds(lambda path, method, more: request(method, path, *more), paths, methods, st.lists(headers, max_size=4)),
    st.just(ping()),
    st.binary(max_size=200),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Some messages in a row, with a few bytes changed, left out or repeated."""
    data = bytearray(b"".join(draw(st.lists(messages, min_size=1, max_size=3))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        length = draw(st.integers(0, 4))
        data[at : at + length] = draw(
            st.one_of(st.binary(max_size=4), st.sampled_from([b"\r\n", b"\n", b"\x00", b": "]))
        )
    return bytes(data)


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A caller: pieces with a pause in seconds after each, and how it goes."""

    pieces: list[tuple[bytes, float]]
    takes: bool
    hangs_up: bool
    resets: bool


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    data = draw(mutated())
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    pauses = draw(st.lists(st.sampled_from([0.0, 0.0, 0.1, 5.0, 40.0]), min_size=len(pieces), max_size=len(pieces)))
    return Trace(
        pieces=list(zip(pieces, pauses, strict=True)),
        takes=draw(st.booleans()),
        hangs_up=draw(st.booleans()),
        resets=draw(st.booleans()),
    )


@examples(60)
@given(callers=st.lists(traces(), min_size=1, max_size=4))
def test_in_virtual_time_no_caller_stops_another_or_is_told_that_the_server_failed(callers: list[Trace]) -> None:
    with Proxied(ECHO) as proxied:
        wires = [proxied.call(takes=trace.takes) for trace in callers]
        for step in range(max(len(trace.pieces) for trace in callers)):
            for trace, wire in zip(callers, wires, strict=True):
                if step < len(trace.pieces):
                    piece, pause = trace.pieces[step]
                    if piece:
                        wire.send(piece)
                    proxied.let(pause)
            good = proxied.call(invocation(GOOD))
            proxied.let(0.1)
            assert [(told.status, told.body) for told in good.answers()] == [(200, GOOD)]
            good.hang_up()
        for trace, wire in zip(callers, wires, strict=True):
            if trace.hangs_up:
                wire.hang_up()
        proxied.let(400, every_s=20)
        for wire in wires:
            assert all(told.status < 500 for told in wire.answers())
        assert all(wire.closed for wire in wires)
        assert (proxied.proxy.callers, proxied.proxy.held_bytes) == (set(), 0)
        for asked in proxied.triton.requests:
            head, end, body = asked.data.partition(b"\r\n\r\n")
            read = HEAD.fullmatch(head + end)
            assert read is not None, head
            assert int(read["length"] or 0) == len(body)


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    process: GuardedProcess
    port: int
    log: Path

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def asks(self, body: bytes) -> bytes:
        with self.connect() as caller:
            caller.sendall(invocation(body, "Connection: close"))
            got = b"".join(iter(lambda: caller.recv(1 << 20), b""))
        (told,) = answers(got)
        assert told.status == 200, told
        return told.body

    def memory(self) -> int:
        assert self.process.exit_status is None, self.log.read_text()
        return int(psutil.Process(self.process.pid).memory_info().rss)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("proxy")
    at, stand_in = str(folder / "http"), Path(__file__).with_name("stand_in_triton.py")
    command = [sys.executable, "-I", "-S", str(stand_in), at]
    command = plan_command(
        str(folder), root=str(ROOT), command=command, environment={}, socket=at, model=MODEL, key=KEY
    )
    with (folder / "log").open("wb") as log:
        process = GuardedProcess.start(
            command,
            environment={},
            stdout=subprocess.PIPE,
            stderr=log,
        )
    with process.stdout as told:
        port = json.loads(told.readline())["port"]
    running = Program(process=process, port=port, log=folder / "log")
    while not Path(at).exists():
        assert process.exit_status is None, running.log.read_text()
    yield running
    said = re.sub(rb"(?m)^.*Terminated.*$", b"", running.log.read_bytes())
    process.stop()
    assert said == b"", said.decode()


@pytest.mark.integration
@examples(30)
@given(callers=st.lists(traces(), min_size=1, max_size=4))
def test_on_loopback_the_program_bears_them_too(program: Program, callers: list[Trace]) -> None:
    before = program.memory()
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(program.connect()) for _ in callers]
        for step in range(max(len(trace.pieces) for trace in callers)):
            for trace, caller in zip(callers, opened, strict=True):
                with contextlib.suppress(OSError):  # it hung up, as it may
                    if step < len(trace.pieces):
                        caller.sendall(trace.pieces[step][0])
        assert program.asks(GOOD) == GOOD
        for trace, caller in zip(callers, opened, strict=True):
            if trace.resets:
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif trace.hangs_up:
                with contextlib.suppress(OSError):
                    caller.shutdown(socket.SHUT_WR)
                    got = b"".join(iter(lambda caller=caller: caller.recv(1 << 16), b""))  # type: ignore[misc]
                    statuses = re.findall(rb"(?:^|\})HTTP/1\.1 (\d)", got)
                    assert b"5" not in statuses
    assert program.asks(GOOD) == GOOD
    assert program.memory() - before < MAX_GROWTH_BYTES


@pytest.mark.integration
def test_a_million_chunks_neither_end_it_nor_hold_others_up(program: Program) -> None:
    before = program.memory()
    with program.connect() as hostile:
        with contextlib.suppress(OSError):
            hostile.sendall(in_chunks(*[b"x"] * 1_000_000))
        with contextlib.suppress(OSError):
            assert hostile.recv(64).startswith(b"HTTP/1.1 400 ")
    assert program.asks(GOOD) == GOOD
    assert program.memory() - before < MAX_GROWTH_BYTES


@pytest.mark.integration
@pytest.mark.slow
def test_many_unfinished_bodies_take_no_more_memory_than_stated(program: Program) -> None:
    """The bound is `Limits.held_bytes`, and up to 0.4 MB for each of the other connections."""
    before = program.memory()
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            caller = stack.enter_context(program.connect())
            with contextlib.suppress(OSError):
                caller.sendall(invocation(b"x" * 6_000_000)[:-1])
        grown = program.memory() - before
        assert grown < (256 << 20) * 1.3 + 100 * 400_000, f"{grown / 2**20:.0f} MiB"
        assert program.asks(GOOD) == GOOD
