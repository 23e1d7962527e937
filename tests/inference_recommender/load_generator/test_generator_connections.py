"""Connections that end: by a server that hangs up, hangs, talks out of turn, or is not there."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from inference_recommender.load_generator import loops as open_loop, pool
from inference_recommender.load_generator.load_run import Run
from inference_recommender.load_generator.outgoing import Outgoing
from inference_recommender.load_generator.plan import Arrivals, LoadPlan, Phase, TrafficPattern
from inference_recommender.load_generator.requests import Target

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ONE_USER = TrafficPattern(traffic_type="PHASES", phases=(Phase(initial_number_of_users=1, duration_in_seconds=1),))
REQUEST = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def _drive(serve: Serve, traffic: TrafficPattern | Arrivals, window_s: float = 0.25) -> tuple[str, Run]:
    """Why the run ended, and the run."""

    async def drive() -> tuple[str, Run]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        if isinstance(traffic, Arrivals):
            plan = LoadPlan(url=url, payloads=Path(), arrivals=traffic, window_s=window_s)
        else:
            plan = LoadPlan(url=url, payloads=Path(), traffic_pattern=traffic, window_s=window_s)
        run = Run(plan, Outgoing(target=Target.of(url), requests=[REQUEST]), lambda window: None)
        try:
            return await run.drive(), run
        finally:
            server.close()

    return asyncio.run(drive())


async def _read_one(reader: asyncio.StreamReader) -> None:
    await reader.readexactly(len(REQUEST))


def test_a_server_that_hangs_up_after_every_answer_is_called_again_at_once() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _read_one(reader)
        writer.write(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        await writer.drain()
        writer.close()

    ended, run = _drive(serve, ONE_USER)
    rows = run.records.rows()
    assert ended == "traffic ended"
    assert rows.errors == 0
    assert len(rows.succeeded) > 1 / pool.RECONNECT_S + 2, "a pause between any two would allow no more"


def test_a_connection_that_breaks_before_the_answer_is_a_failed_request() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _read_one(reader)
        writer.write(OK[:-1])
        await writer.drain()
        writer.close()

    ended, run = _drive(serve, ONE_USER)
    rows = run.records.rows()
    assert ended == "target failed: the connection was closed"
    assert rows.errors == len(rows.succeeded) > 0


@pytest.mark.parametrize("answer", [OK + OK, OK + b"x"])
def test_a_server_that_talks_out_of_turn_has_failed(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _read_one(reader)
        writer.write(answer)
        await writer.drain()

    ended, _ = _drive(serve, ONE_USER)
    assert ended == "target failed: it sends more than an answer to each request"


def test_an_answer_in_pieces_is_one_answer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            await _read_one(reader)
            for at in range(0, len(OK), 7):
                writer.write(OK[at : at + 7])
                await writer.drain()
                await asyncio.sleep(0.001)

    ended, run = _drive(serve, ONE_USER)
    rows = run.records.rows()
    assert ended == "traffic ended"
    assert len(rows.succeeded) > 5
    assert rows.errors == 0
    assert rows.latencies_ms.min() > 5, "its end is the end of its last piece"


@pytest.mark.parametrize(
    "traffic", [ONE_USER, Arrivals(invocations_per_minute=1200, duration_in_seconds=1, connections=2)]
)
def test_requests_that_are_never_answered_are_kept_as_unfinished(
    monkeypatch: pytest.MonkeyPatch, traffic: TrafficPattern | Arrivals
) -> None:
    monkeypatch.setattr(pool, "DRAIN_S", 0.2)
    monkeypatch.setattr(open_loop, "BACKLOG_S", 0.1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    ended, run = _drive(serve, traffic)
    assert ended == "traffic ended"
    assert len(run.records) == 0
    waiting = run.records.unfinished_intended_s()
    assert len(waiting) == 1 if traffic is ONE_USER else len(waiting) > 10
    assert ((waiting > -0.1) & (waiting < 1)).all()
