"""The Neuron server's HTTP: what a caller may send is bounded in size, number and time, and one waits for no other."""

import asyncio
from dataclasses import replace
from http import HTTPStatus

import pytest

from containers.neuron.connection import Answer, Limits, Request
from tests.containers.neuron.callers import Caller, echo, get, in_virtual_time, pass_time, post, serve, settle

CHUNKED = b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
SMALL = Limits(body=1000, head=200, headers=4, held=1500, connections=3, ahead=2)


async def talk(*pieces: bytes, limits: Limits = SMALL) -> Caller:
    """Sends the pieces, each after the last has been dealt with."""
    caller = Caller(serve(limits=limits), limits)
    for piece in pieces:
        caller.send(piece)
        await settle()
    return caller


def heard(*pieces: bytes, limits: Limits = SMALL) -> list[tuple[int, bytes]]:
    caller = in_virtual_time(talk(*pieces, limits=limits))
    return [(each.status, each.body) for each in caller.heard]


def test_requests_are_answered_in_order_also_those_sent_at_once() -> None:
    together = post(b"1") + post(b"2") + get("/ping?x=1")
    assert heard(together) == [
        (200, b"POST /invocations 1"),
        (200, b"POST /invocations 2"),
        (200, b"GET /ping "),
    ]
    assert heard(*(bytes([byte]) for byte in together)) == heard(together)


@pytest.mark.parametrize(
    ("request_", "status", "sentence"),
    [
        (post(b"x" * 1001), 413, "The body is over 1000 bytes."),
        (CHUNKED + b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n", 413, "The body is over 1000 bytes."),
        (get("/" + "x" * 201), 414, "A path may have 200 bytes."),
        (get("/", *(f"H{n}: 1" for n in range(5))), 431, "Headers may be 4, and 200 bytes in all."),
        (get("/", "H: " + "x" * 200), 431, "Headers may be 4, and 200 bytes in all."),
        (b"CONNECT host:80 HTTP/1.1\r\n\r\n", 405, "CONNECT is not served here."),
        (get("/1") + get("/2") * 3, 400, "At most 2 requests may wait in a connection."),
    ],
)
def test_what_is_too_large_is_refused_and_ends_the_connection(request_: bytes, status: int, sentence: str) -> None:
    caller = in_virtual_time(talk(request_))
    assert (caller.heard[-1].status, caller.heard[-1].body) == (status, b'{"error": "%b"}' % sentence.encode())
    assert caller.heard[-1].headers["connection"] == "close"
    assert caller.ended


@pytest.mark.parametrize(
    ("first", "more", "status"),
    [
        (b"GET /", b"x" * 100, 431),
        (b"GET / HTTP/1.1\r\nHeader: ", b"x" * 100, 431),
        (CHUNKED + b"1;", b"x" * 100, 413),
        (CHUNKED, b"1;" + b"x" * 100 + b"\r\na\r\n", 413),
        (CHUNKED + b"1\r\na\r\n0\r\n", b"T: x\r\n", 431),
    ],
    ids=["path", "header", "extension", "extensions of many chunks", "trailers"],
)
def test_what_never_ends_is_cut_off(first: bytes, more: bytes, status: int) -> None:
    [answer] = heard(first, *[more] * 100)
    assert answer[0] == status


def test_a_body_of_chunks_of_one_byte_is_one_body() -> None:
    chunks = b"".join(b"1\r\n%c\r\n" % (97 + n % 26) for n in range(300))
    assert heard(CHUNKED, chunks + b"0\r\n\r\n") == [
        (200, b"POST /invocations " + bytes(97 + n % 26 for n in range(300)))
    ]


BOTH = "Content-Length: 5\r\nTransfer-Encoding: chunked"


@pytest.mark.parametrize(
    "head",
    [
        BOTH,
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding : chunked",
        "Host: a\nTransfer-Encoding: chunked",
        "Host: a\r\n Transfer-Encoding: chunked",
    ],
)
def test_a_head_that_two_servers_would_read_differently_is_refused_and_nothing_after_it_is_read(head: str) -> None:
    """Behind a load balancer a second request in the body would be taken for another caller's."""
    smuggled = f"POST /invocations HTTP/1.1\r\n{head}\r\n\r\n0\r\n\r\n".encode() + get("/smuggled")
    caller = in_virtual_time(talk(smuggled))
    assert caller.statuses == [400]
    assert caller.ended


def test_an_upgrade_is_ignored_and_its_body_is_no_request() -> None:
    """Java's client asks for h2c in its first request, and llhttp then takes the body for another protocol's."""
    body = get("/smuggled")
    asked = post(body, "Connection: Upgrade", "Upgrade: h2c")
    expected = [(200, b"POST /invocations " + body), (200, b"GET /ping ")]
    assert heard(asked, get()) == expected
    assert heard(*(bytes([byte]) for byte in asked + get())) == expected


def test_a_caller_that_asks_first_is_told_to_go_on() -> None:
    head, _, body = post(b"12345", "Expect: 100-continue").partition(b"\r\n\r\n")
    assert heard(head + b"\r\n\r\n", body) == [(100, b""), (200, b"POST /invocations 12345")]
    head, _, _ = post(b"x" * 1001, "Expect: 100-continue").partition(b"\r\n\r\n")
    assert [status for status, _ in heard(head + b"\r\n\r\n")] == [413]


def test_old_and_new_callers_are_told_whether_the_connection_stays() -> None:
    async def connections(request: bytes) -> tuple[str | None, bool]:
        caller = await talk(request)
        return caller.heard[0].headers.get("connection"), caller.closed

    asked = {request: in_virtual_time(connections(request)) for request in REQUESTS_BY_STAY}
    assert asked == REQUESTS_BY_STAY


REQUESTS_BY_STAY = {
    get(): (None, False),
    get("/ping", "Connection: close"): ("close", True),
    get(version="1.0"): ("close", True),
    get("/ping", "Connection: keep-alive", version="1.0"): ("keep-alive", False),
}


def test_to_head_the_length_is_told_and_no_body_sent() -> None:
    async def written() -> bytes:
        caller = await talk(get(method="HEAD"))
        return bytes(caller._written)

    answer = in_virtual_time(written())
    assert b"Content-Length: 11\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("sent", "seconds", "statuses"),
    [
        (b"", 75.0, []),
        (get(), 75.0, [200]),
        (b"GET /ping HTTP/1.1\r\n", 10.0, [408]),
        (b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n1234", 60.0, [408]),
    ],
    ids=["nothing", "after a request", "head", "body"],
)
def test_a_caller_has_limited_time(sent: bytes, seconds: float, statuses: list[int]) -> None:
    """A refused one has 5 s more to read why."""

    async def wait() -> list[bool]:
        server = serve()
        caller = Caller(server)
        caller.send(sent)
        await pass_time(server, seconds - 1)
        before = caller.closed or caller.ended
        await pass_time(server, 2)
        ended = caller.closed or caller.ended
        await pass_time(server, 6)
        assert caller.statuses == statuses
        return [before, ended, caller.closed]

    assert in_virtual_time(wait()) == [False, True, True]


def test_a_byte_now_and_then_does_not_buy_time() -> None:
    async def drip() -> list[int]:
        server = serve()
        caller = Caller(server)
        caller.send(b"GET /ping HTTP/1.1\r\nHeader: ")
        for _ in range(12):
            caller.send(b"x")
            await pass_time(server, 1)
        return caller.statuses

    assert in_virtual_time(drip()) == [408]


def test_a_caller_that_does_not_read_its_answer_is_cut_off() -> None:
    async def wait() -> list[bool]:
        server = serve()
        caller = Caller(server, reads=False)
        caller.send(get() + get())
        await pass_time(server, 29)
        before = caller.closed
        await pass_time(server, 3)
        return [before, caller.closed]

    assert in_virtual_time(wait()) == [False, True]


def test_the_request_of_a_caller_that_hangs_up_is_dropped() -> None:
    cancelled: list[bytes] = []

    async def for_ever(request: Request) -> Answer:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append(request.body)
            raise
        raise AssertionError

    async def hang_up() -> tuple[int, list[bytes]]:
        server = serve(for_ever)
        caller = Caller(server)
        caller.send(post(b"1") + post(b"2"))
        await settle()
        caller.hang_up()
        await settle()
        return server.held, list(cancelled)

    assert in_virtual_time(hang_up()) == (0, [b"1"])


def test_a_new_connection_takes_the_place_of_the_one_that_waits_longest_and_none_is_cut_off_from_its_answer() -> None:
    """So that a health check gets in, however many connections are opened and left."""
    go = asyncio.Event()

    async def slow(request: Request) -> Answer:
        if request.path == "/slow":
            await go.wait()
        return await echo(request)

    async def crowd() -> None:
        server = serve(slow, SMALL)
        busy = Caller(server, SMALL)
        busy.send(get("/slow"))
        await settle()
        idle, begun = Caller(server, SMALL), Caller(server, SMALL)
        begun.send(b"GET ")
        health = Caller(server, SMALL)
        health.send(get())
        await settle()
        assert (idle.closed, begun.closed, health.statuses) == (True, False, [200])
        for caller in (begun, health):
            caller.send(b"/slow HTTP/1.1\r\n\r\n" if caller is begun else get("/slow"))
        await settle()
        late = Caller(server, SMALL)
        await settle()
        assert [(each.status, each.headers["retry-after"]) for each in late.heard] == [(503, "1")]
        assert late.closed
        go.set()
        await settle()
        assert [busy.statuses, begun.statuses, health.statuses] == [[200], [200], [200, 200]]

    in_virtual_time(crowd())


def test_the_bodies_of_all_callers_share_the_memory() -> None:
    go = asyncio.Event()

    async def slow(request: Request) -> Answer:
        await go.wait()
        return Answer(200)

    async def fill() -> list[list[int]]:
        server = serve(slow, SMALL)
        first, second = Caller(server, SMALL), Caller(server, SMALL)
        for caller in (first, second):
            caller.send(post(b"x" * 900))
        await settle()
        assert [first.statuses, second.statuses] == [[], [503]]
        go.set()
        await settle()
        second.hang_up()
        await settle()
        assert server.held == 0
        third = Caller(server, SMALL)
        third.send(post(b"x" * 900))
        await settle()
        return [first.statuses, third.statuses]

    assert in_virtual_time(fill()) == [[200], [200]]


def test_a_server_that_drains_answers_what_has_begun_and_no_more() -> None:
    async def slow(request: Request) -> Answer:
        await asyncio.sleep(float(request.path[1:]))
        return await echo(request)

    async def drain() -> None:
        server, loop = serve(slow), asyncio.get_running_loop()
        kept, new, begun, answered, stuck = (Caller(server) for _ in range(5))
        kept.send(get("/0"))
        begun.send(b"GET /1 ")
        answered.send(get("/3") + get("/0"))
        stuck.send(get("/100"))
        await settle()
        began = loop.time()
        draining = asyncio.create_task(server.drain(10))
        await settle()
        assert kept.closed
        new.send(get("/0"))
        begun.send(b"HTTP/1.1\r\n\r\n")
        await draining
        await settle()
        assert loop.time() - began == pytest.approx(10)
        callers = (new, begun, answered, stuck)
        assert [caller.statuses for caller in callers] == [[200], [200], [200], []]
        assert all(caller.closed for caller in callers)
        assert {each.headers["connection"] for caller in callers for each in caller.heard} == {"close"}

    in_virtual_time(drain())


def test_a_new_connection_that_says_nothing_does_not_hold_up_the_drain() -> None:
    async def drain() -> float:
        server, loop = serve(), asyncio.get_running_loop()
        Caller(server)
        began = loop.time()
        sweeping = asyncio.create_task(pass_time(server, 5))
        await server.drain(20)
        sweeping.cancel()
        return loop.time() - began

    assert in_virtual_time(drain()) <= 2.5


def test_a_connection_that_is_accepted_before_the_drain_and_made_in_it_is_answered() -> None:
    """The event loop accepts a connection in one turn, and makes it in the next."""

    async def drain() -> tuple[list[int], float]:
        server, loop, made = serve(), asyncio.get_running_loop(), list[Caller]()
        last = Caller(server)
        began = loop.time()
        draining = asyncio.create_task(server.drain(20))
        last.hang_up()
        loop.call_soon(lambda: made.append(Caller(server)))
        await settle()
        made[0].send(get())
        await draining
        return made[0].statuses, loop.time() - began

    assert in_virtual_time(drain()) == ([200], 0)


def test_every_status_has_its_line() -> None:
    statuses = [200, 400, 404, 405, 408, 413, 414, 415, 431, 500, 503]

    async def answers(status: int) -> int:
        async def respond(request: Request) -> Answer:
            return Answer(status)

        caller = Caller(serve(respond))
        caller.send(get())
        await settle()
        return caller.heard[0].status

    assert [in_virtual_time(answers(HTTPStatus(status))) for status in statuses] == statuses


def test_many_small_requests_in_a_connection_are_not_one_large_one() -> None:
    requests = [post(b"x" * 100)] * 50
    assert [status for status, _ in heard(*requests, limits=replace(SMALL, body=120))] == [200] * 50
