"""The Neuron server answers in order, drains, and ends clients as tests/test_server_limits.py does not see."""

import asyncio

import pytest

from containers.neuron.http_server import HttpLimits, HttpRequest, HttpResponse
from tests.containers.neuron.callers import Caller, echo, get, in_virtual_time, pass_time, post, serve, settle

CHUNKED = b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
SMALL = HttpLimits(body=1000, head=200, headers=4, held=1500, connections=3, ahead=2)


async def talk(*pieces: bytes, limits: HttpLimits = SMALL) -> Caller:
    """Sends the pieces one after the other."""
    caller = Caller(serve(limits=limits))
    for piece in pieces:
        caller.send(piece)
        await settle()
    return caller


def heard(*pieces: bytes, limits: HttpLimits = SMALL) -> list[tuple[int, bytes]]:
    caller = in_virtual_time(talk(*pieces, limits=limits))
    return [(each.status, each.body) for each in caller.heard]


def bytewise(sent: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in sent]


def test_pipelined_requests_are_answered_in_order() -> None:
    together = post(b"1") + post(b"2") + get("/ping?x=1")
    expected = [(200, b"POST /invocations 1"), (200, b"POST /invocations 2"), (200, b"GET /ping ")]
    assert heard(together) == expected
    assert heard(*bytewise(together)) == expected
    assert [status for status, _ in heard(*[post(b"x" * 100)] * 50)] == [200] * 50


TOO_LARGE = "The body has more than 1000 bytes."
TOO_MANY = "At most 4 headers of 200 bytes are allowed."
REFUSED = [
    (post(b"x" * 1001), 413, TOO_LARGE),
    (CHUNKED + b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n", 413, TOO_LARGE),
    (get("/" + "x" * 201), 414, "The path has more than 200 bytes."),
    (get("/", *(f"H{n}: 1" for n in range(5))), 431, TOO_MANY),
    (get("/", "H: " + "x" * 200), 431, TOO_MANY),
    (b"CONNECT host:80 HTTP/1.1\r\n\r\n", 405, "CONNECT is not supported."),
    (get("/1") + get("/2") * 3, 400, "At most 2 requests may wait in a connection."),
]


@pytest.mark.parametrize(("sent", "status", "sentence"), REFUSED)
def test_a_request_beyond_a_limit_is_refused_and_ends_the_connection(sent: bytes, status: int, sentence: str) -> None:
    caller = in_virtual_time(talk(sent))
    last = caller.heard[-1]
    assert (last.status, last.body, last.headers["connection"]) == (
        status,
        b'{"error": "%b"}' % sentence.encode(),
        "close",
    )
    assert caller.ended


ENDLESS = {
    "extension": (CHUNKED + b"1;", b"x" * 100, 413),
    "extensions of many chunks": (CHUNKED, b"1;" + b"x" * 100 + b"\r\na\r\n", 413),
    "trailers": (CHUNKED + b"1\r\na\r\n0\r\n", b"T: x\r\n", 431),
}


@pytest.mark.parametrize(("first", "more", "status"), ENDLESS.values(), ids=ENDLESS)
def test_endless_chunk_extensions_and_trailers_are_refused(first: bytes, more: bytes, status: int) -> None:
    [answer] = heard(first, *[more] * 100)
    assert answer[0] == status


def test_an_upgrade_is_ignored_and_its_body_is_not_a_request() -> None:
    """Java's client requests h2c first, and llhttp then treats the body as another protocol."""
    body = get("/smuggled")
    sent = post(body, "Connection: Upgrade", "Upgrade: h2c") + get()
    expected = [(200, b"POST /invocations " + body), (200, b"GET /ping ")]
    assert heard(sent) == expected
    assert heard(*bytewise(sent)) == expected


def test_a_client_that_expects_100_continue_gets_it_or_an_error() -> None:
    head, _, body = post(b"12345", "Expect: 100-continue").partition(b"\r\n\r\n")
    assert heard(head + b"\r\n\r\n", body) == [(100, b""), (200, b"POST /invocations 12345")]
    head, _, _ = post(b"x" * 1001, "Expect: 100-continue").partition(b"\r\n\r\n")
    assert [status for status, _ in heard(head + b"\r\n\r\n")] == [413]


@pytest.mark.parametrize(
    ("sent", "header", "closed"),
    [
        (get(), None, False),
        (get("/ping", "Connection: close"), "close", True),
        (get(version="1.0"), "close", True),
        (get("/ping", "Connection: keep-alive", version="1.0"), "close", True),
    ],
)
def test_the_connection_header_tells_whether_it_stays(sent: bytes, header: str | None, closed: bool) -> None:
    async def connection() -> tuple[str | None, bool]:
        caller = await talk(sent)
        return caller.heard[0].headers.get("connection"), caller.closed

    assert in_virtual_time(connection()) == (header, closed)


def test_a_client_that_does_not_read_its_answer_is_cut() -> None:
    async def wait() -> list[bool]:
        server = serve()
        caller = Caller(server, reads=False)
        caller.send(get() + get())
        await pass_time(server, 29)
        before = caller.closed
        await pass_time(server, 3)
        return [before, caller.closed]

    assert in_virtual_time(wait()) == [False, True]


def test_the_requests_of_a_client_that_hangs_up_are_cancelled() -> None:
    cancelled: list[bytes] = []

    async def hang(request: HttpRequest) -> HttpResponse:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append(request.body)
            raise
        raise AssertionError

    async def hang_up() -> int:
        server = serve(hang)
        caller = Caller(server)
        caller.send(post(b"1") + post(b"2"))
        await settle()
        caller.close()
        await settle()
        return server.held

    assert in_virtual_time(hang_up()) == 0
    assert cancelled == [b"1"]


def test_a_draining_server_answers_requests_that_have_begun() -> None:
    async def slow(request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(float(request.path[1:]))
        return await echo(request)

    async def drain() -> None:
        server, loop = serve(slow), asyncio.get_running_loop()
        idle, begun, answered, stuck = (Caller(server) for _ in range(4))
        idle.send(get("/0"))
        begun.send(b"GET /1 ")
        answered.send(get("/3") + get("/0"))
        stuck.send(get("/100"))
        await settle()
        began = loop.time()
        draining = asyncio.create_task(server.drain(10))
        await settle()
        assert idle.closed
        begun.send(b"HTTP/1.1\r\n\r\n")
        await draining
        await settle()
        assert loop.time() - began == pytest.approx(10)
        callers = (begun, answered, stuck)
        assert [caller.statuses for caller in callers] == [[200], [200], []]
        assert all(caller.closed for caller in callers)
        assert {each.headers["connection"] for caller in callers for each in caller.heard} == {"close"}

    in_virtual_time(drain())
