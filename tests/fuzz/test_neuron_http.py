"""The Neuron server's HTTP under hostile clients, in virtual time: each answer is HTTP and not a 5xx.

Afterwards the server holds nothing of them and answers the next client. tests/containers/neuron/test_neuron_hostile.py
has a real process.
"""

from hypothesis import given
from hypothesis import strategies as st

from containers.neuron.http_server import HttpLimits, HttpRequest, HttpResponse
from tests.containers.neuron.callers import Caller, get, in_virtual_time, pass_time, post, serve, settle
from tests.fuzz import examples

LIMITS = HttpLimits(body=2000, head=400, headers=8, held=1 << 20, connections=64, ahead=2)
ALLOWED = {100, 200, 400, 404, 405, 408, 413, 414, 415, 431}

BODY = st.binary(max_size=300) | st.integers(0, 3000).map(lambda size: b"x" * size)
NAMES = ["Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Expect", "Host", "Content-Encoding", "X"]
NAME = st.sampled_from([*NAMES, "", "X" * 500])
LENGTH = ["0", "5", "-1", "+5", "5,5", "99999999999999999999", "", "\x00", "\r", "\u00ff"]
WORD = ["chunked", "gzip", "close", "keep-alive", "Upgrade", "h2c", "100-continue", "x" * 500]
VALUE = st.sampled_from([*LENGTH, *WORD])
HEADER = st.tuples(NAME, st.sampled_from([":", ": ", " : ", "\t:", ""]), VALUE).map("".join)
METHOD = st.sampled_from(["GET", "POST", "HEAD", "PUT", "CONNECT", "OPTIONS", "PRI", "get", "", "\x16\x03\x01"])
TARGET = st.sampled_from(["/ping", "/invocations", "*", "http://a/ping", "/%2e%2e", "", "/?" + "x" * 500, "\x00"])
VERSION = st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/9.9", ""])
END = st.sampled_from(["\r\n", "\n", "\r", "\r\n\r\n"])


@st.composite
def made_heads(draw: st.DrawFn) -> bytes:
    lines = [" ".join([draw(METHOD), draw(TARGET), draw(VERSION)]), *draw(st.lists(HEADER, max_size=10))]
    end = draw(END)
    return (end.join(lines) + end * 2).encode("latin-1")


@st.composite
def chunked(draw: st.DrawFn) -> bytes:
    head = b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = [
        b"%x%b\r\n%b\r\n" % (len(data) + draw(st.sampled_from([0, 0, 0, 1])), extension, data)
        for data, extension in draw(st.lists(st.tuples(BODY, st.sampled_from([b"", b"", b";a=b", b";" + b"x" * 500]))))
    ]
    return head + b"".join(chunks) + draw(st.sampled_from([b"0\r\n\r\n", b"0\r\nT: x\r\n\r\n", b"", b"0" * 40]))


REQUEST = (
    st.builds(post, BODY)
    | st.builds(post, BODY, HEADER)
    | st.sampled_from([get(), get(version="1.0"), get(method="HEAD"), get("/ping", "Connection: close")])
    | made_heads()
    | chunked()
    | st.binary(max_size=200)
)


@st.composite
def traces(draw: st.DrawFn) -> list[bytes | float | None]:
    """Returns what a caller does: bytes that it sends, seconds that it waits, and None where it hangs up."""
    whole = b"".join(draw(st.lists(REQUEST, min_size=1, max_size=6)))
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces: list[bytes | float | None] = []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        pieces.append(whole[start:end])
        if (seconds := draw(st.sampled_from([0.0, 0.0, 0.0, 0.0, 3.0, 11.0, 61.0]))) > 0:
            pieces.append(seconds)
    if draw(st.booleans()):
        pieces.insert(draw(st.integers(0, len(pieces))), None)
    return pieces


@examples(150)
@given(st.lists(traces(), min_size=1, max_size=3))
def test_no_client_gets_a_5xx_or_leaves_anything(callers: list[list[bytes | float | None]]) -> None:
    async def nothing(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200)  # so that answers to HEAD look like others

    async def play() -> None:
        server = serve(nothing, LIMITS)
        begun = [Caller(server) for _ in callers]
        for caller, trace in zip(begun, callers, strict=True):
            for step in trace:
                if step is None:
                    caller.close()
                elif isinstance(step, float):
                    await pass_time(server, step, 2)
                else:
                    caller.send(step)
                    await settle()
        await pass_time(server, 200, 40)
        for caller in begun:
            assert set(caller.statuses) <= ALLOWED, caller.statuses
            assert caller.closed
        assert (server.held, server.open) == (0, set())
        healthy = Caller(server)
        healthy.send(get())
        await settle()
        assert healthy.statuses == [200]

    in_virtual_time(play())
