"""The proxy before Triton: what it passes on, what it refuses, what it bounds, and what it gives up."""

import json

import pytest

from local_aws.process.container_contract import BINARY, MAX_BODY_BYTES, MAX_HEAD_BYTES
from local_aws.process.proxy import Limits
from tests.local_aws.process.proxied import KEY, Proxied, in_chunks, invocation, ping, request
from tests.virtual_time import Peer, Request, answering, http_answer

ECHO = answering(service_s=0.01, answer=lambda body: (200, b"got " + body))
SILENT = answering(service_s=10_000.0)


def paths(proxied: Proxied) -> list[str]:
    return [each.data.split(b" ")[1].decode() for each in proxied.triton.requests]


def test_an_invocation_becomes_an_inference_of_the_model_with_nothing_else_of_the_callers() -> None:
    with Proxied(ECHO) as proxied:
        told = proxied.ask(invocation(b"{}", "Content-Type: application/json", "X-Amzn-SageMaker-Target-Model: other"))
        assert (told.status, told.body) == (200, b"got {}")
        assert told.headers["content-type"] == "application/json"
        assert [each.data for each in proxied.triton.requests] == [
            b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
        ]


def test_the_binary_form_changes_its_header_on_both_ways() -> None:
    def serve(asked: Request, peer: Peer) -> None:
        assert b"\r\nInference-Header-Content-Length: 2\r\n" in asked.data
        peer.send(http_answer(b"[]raw", 200, "Inference-Header-Content-Length: 2"))

    with Proxied(serve) as proxied:
        told = proxied.ask(invocation(b"{}tensor", f"Content-Type: {BINARY}2"))
    assert (told.headers["content-type"], told.body) == (f"{BINARY}2", b"[]raw")


@pytest.mark.parametrize(
    ("error", "status"),
    [("Stub process is not healthy", 400), ("failed to parse the request JSON buffer: Invalid value. at 1", 500)],
)
def test_what_a_model_fails_at_is_400_and_a_body_that_is_no_json_500_as_at_tritons_front_end(
    error: str, status: int
) -> None:
    body = json.dumps({"error": error}, separators=(",", ":")).encode()
    with Proxied(answering(answer=lambda _: (500, body))) as proxied:
        told = proxied.ask(invocation())
    assert (told.status, told.body) == (status, body)


def test_what_triton_counted_is_asked_behind_the_key() -> None:
    with Proxied(answering(answer=lambda _: (200, b'{"model_stats":[]}'))) as proxied:
        told = proxied.ask(request("GET", f"/{KEY}/statistics"))
        assert (told.status, told.body) == (200, b'{"model_stats":[]}')
        assert paths(proxied) == ["/v2/models/stats"]
        assert proxied.ask(request("GET", "/other/statistics")).status == 400
        assert proxied.ask(request("POST", f"/{KEY}/statistics", "Content-Length: 0")).status == 405
        assert len(proxied.triton.requests) == 1


@pytest.mark.parametrize(
    ("server", "model", "status"), [(200, 200, 200), (200, 400, 503), (400, 200, 503), (400, 400, 503)]
)
def test_ping_is_200_where_triton_and_the_model_are_ready(server: int, model: int, status: int) -> None:
    def serve(asked: Request, peer: Peer) -> None:
        peer.send(http_answer(b"", server if b"/v2/health/ready" in asked.data else model), 0.01)

    with Proxied(serve) as proxied:
        told = proxied.ask(ping())
        assert told.status == status
        assert set(paths(proxied)) <= {"/v2/health/ready", "/v2/models/echo/ready"}


def test_ping_is_503_where_triton_is_silent_for_two_seconds_or_not_there() -> None:
    with Proxied(SILENT) as proxied:
        caller = proxied.call(ping())
        proxied.let(1.5)
        assert caller.answers() == []
        proxied.let(1.1)
        assert [each.status for each in caller.answers()] == [503]
    with Proxied(ECHO) as proxied:
        proxied.triton.serve = None
        assert proxied.ask(ping()).status == 503
        assert proxied.ask(invocation()).status == 503


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request("GET", "/v2/repository/index"), 400),
        (request("POST", "/v2/repository/models/evil/load", "Content-Length: 0"), 400),
        (request("GET", "/ping"), 400),
        (invocation(path="/invocations"), 400),
        (invocation(path="/wrong/invocations"), 400),
        (invocation(path=f"/{KEY}/models"), 400),
        (invocation(path=f"/{KEY}/invocations/../../v2/repository/index"), 400),
        (invocation(method="PUT"), 405),
        (request("GET", f"/{KEY}/invocations"), 405),
        (invocation(b"{}", "Origin: http://evil.example"), 403),
        (invocation(b"{}").replace(b"Host: localhost", b"Host: evil.example"), 403),
        (invocation(b"{}", "Host: localhost"), 403),
        (invocation(b"{}", "Transfer-Encoding: chunked"), 400),
        (invocation(b"{}", "Content-Length: 2"), 400),
        (invocation(b"{}", "Content-Length: 3"), 400),
        (invocation().replace(b"Length: 2", b"Length: +2"), 400),
        (invocation().replace(b"Length: 2", b"Length: 0x2"), 400),
        (invocation().replace(b"Length: 2", b"Length: 2, 2"), 400),
        (invocation().replace(b"Length: 2", b"Length: -2"), 400),
        (invocation().replace(b"Content-Length: 2", b"Transfer-Encoding: chunked, identity"), 400),
        (invocation().replace(b"Content-Length: 2", b"Transfer-Encoding: gzip, chunked"), 400),
        (in_chunks(b"{}").replace(b"HTTP/1.1", b"HTTP/1.0"), 400),
        (in_chunks(b"{}").replace(b"2\r\n{}", b"x\r\n{}"), 400),
        (invocation().replace(b"HTTP/1.1", b"HTTP/2.0"), 400),
        (invocation().replace(b" HTTP/1.1", b""), 400),
        (invocation().replace(b"Content-Length:", b"Content-Length :"), 400),
        (invocation().replace(b"Host: localhost", b"Host: localhost\r\n folded"), 400),
        (invocation(b"{}", "Upgrade: h2c", "Connection: upgrade"), 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (invocation(b"{}", f"A: {'a' * MAX_HEAD_BYTES}"), 431),
        (invocation().replace(b"Length: 2", b"Length: 6291457"), 413),
        (invocation().replace(b"Length: 2", b"Length: 99999999999999999999"), 400),
        (invocation(b"{}", f"Content-Type: {BINARY}3"), 400),
        (invocation(b"{}", f"Content-Type: {BINARY}-1"), 400),
        (invocation(b"{}", f"Content-Type: {BINARY}two"), 400),
        (invocation(b"{}", f"Content-Type: x; {BINARY}2"), 400),
    ],
)
def test_it_refuses_and_triton_hears_nothing(sent: bytes, status: int) -> None:
    with Proxied(ECHO) as proxied:
        caller = proxied.call(sent)
        assert [each.status for each in caller.answers()] == [status]
        assert caller.ended, "no second request on a connection whose first was not understood"
        proxied.let(3)
        assert caller.closed
        assert proxied.triton.requests == []


def test_chunks_arrive_as_one_body_however_they_are_cut() -> None:
    whole = in_chunks(b"ab", b"c", b"d" * 1000)
    with Proxied(ECHO) as proxied:
        for size in (1, 7, len(whole)):
            caller = proxied.call(*(whole[at : at + size] for at in range(0, len(whole), size)))
            proxied.let(1)
            assert [each.body for each in caller.answers()] == [b"got abc" + b"d" * 1000]
            assert caller.ended
        assert all(b"chunked" not in each.data for each in proxied.triton.requests)


def test_a_million_chunks_end_at_the_first_few_thousand() -> None:
    with Proxied(ECHO) as proxied:
        caller = proxied.call(in_chunks(*[b"x"] * 5000)[:-5])
        assert [each.status for each in caller.answers()] == [400]
        assert proxied.triton.requests == []


def test_a_chunked_body_counts_with_all_that_is_around_it() -> None:
    with Proxied(ECHO) as proxied:
        huge = proxied.call(request("POST", f"/{KEY}/invocations", "Transfer-Encoding: chunked"), b"600001\r\n")
        for _ in range(100):
            huge.send(b"x" * 65_536)
        assert [each.status for each in huge.answers()] == [413]
        named = proxied.call(request("POST", f"/{KEY}/invocations", "Transfer-Encoding: chunked"), b"1;a=")
        for _ in range(100):
            named.send(b"x" * 65_536)
        assert [each.status for each in named.answers()] == [413]
        assert proxied.proxy.held_bytes == 0


def test_an_answer_over_the_limit_is_an_error_of_the_models() -> None:
    with Proxied(answering(answer=lambda _: (200, b"x" * (MAX_BODY_BYTES + 1)))) as proxied:
        told = proxied.ask(invocation())
    assert (told.status, json.loads(told.body)) == (500, {"error": "The model's answer is longer than 6291456 bytes."})


def test_an_answer_in_pieces_arrives_whole() -> None:
    whole = http_answer(b"y" * 200_000)

    def serve(asked: Request, peer: Peer) -> None:
        for number, at in enumerate(range(0, len(whole), 30_000)):
            peer.send(whole[at : at + 30_000], 0.01 * number)

    with Proxied(serve) as proxied:
        assert proxied.ask(invocation()).body == b"y" * 200_000
        assert proxied.proxy.held_bytes == 0


def test_after_sixty_seconds_it_gives_the_model_up_there_too() -> None:
    with Proxied(SILENT) as proxied:
        caller = proxied.call(invocation())
        proxied.let(59)
        assert caller.answers() == []
        proxied.let(2)
        assert [each.status for each in caller.answers()] == [504]
        assert not caller.closed
        assert proxied.triton._open[0].is_closing(), "Triton sees the hang-up and gives the request up"


def test_work_for_a_caller_that_is_gone_is_given_up() -> None:
    with Proxied(SILENT) as proxied:
        caller = proxied.call(invocation())
        proxied.let(0.1)
        caller.hang_up()
        proxied.let(0.1)
        assert proxied.triton._open[0].is_closing()
        assert proxied.proxy.callers == set()
    with Proxied(ECHO, connect_s=1.0) as proxied:
        proxied.call(invocation()).hang_up()
        proxied.let(2)
        assert proxied.triton.requests == [], "it was gone before there was a connection to Triton"
        assert proxied.ask(invocation()).status == 200
        assert proxied.triton.connections == 1, "which serves the next"


def test_connections_to_triton_are_kept() -> None:
    with Proxied(ECHO) as proxied:
        caller = proxied.call()
        for number in range(1, 6):
            caller.send(invocation())
            proxied.let(0.1)
            assert len(caller.answers()) == number
        assert proxied.triton.connections == 1


def test_requests_that_come_at_once_are_answered_one_after_the_other() -> None:
    with Proxied(ECHO) as proxied:
        caller = proxied.call(b"".join(invocation(b"%d" % number) for number in range(5)))
        proxied.let(1)
        assert [each.body for each in caller.answers()] == [b"got %d" % number for number in range(5)]
        moments = [each.at_s for each in proxied.triton.requests]
        assert moments == sorted(set(moments)), "never two of a caller's at a time"


def test_a_caller_that_sends_ahead_is_read_no_further() -> None:
    with Proxied(SILENT) as proxied:
        caller = proxied.call(invocation())
        caller.send(invocation(b"x" * 70_000))
        assert not caller.reading


def test_a_hundred_continue_is_answered_before_the_body() -> None:
    with Proxied(ECHO) as proxied:
        caller = proxied.call(request("POST", f"/{KEY}/invocations", "Content-Length: 2", "Expect: 100-continue"))
        assert bytes(caller.got) == b"HTTP/1.1 100 Continue\r\n\r\n"
        caller.send(b"{}")
        proxied.let(1)
        assert [each.status for each in caller.answers()] == [200]


def test_a_connection_closes_where_the_caller_says_so() -> None:
    with Proxied(ECHO) as proxied:
        for sent in (invocation(b"{}", "Connection: close"), invocation().replace(b"HTTP/1.1", b"HTTP/1.0")):
            told = proxied.ask(sent)
            assert (told.status, told.headers["connection"]) == (200, "close")


@pytest.mark.parametrize(
    ("sent", "seconds", "statuses"),
    [
        (b"", 11, []),
        (b"POST ", 11, [408]),
        (invocation(b"{}")[:-1], 31, [408]),
        (in_chunks(b"{}")[:-3], 31, [408]),
    ],
    ids=["nothing", "a part of a head", "a part of a body", "a part of the chunks"],
)
def test_a_caller_has_its_time_to_send(sent: bytes, seconds: float, statuses: list[int]) -> None:
    with Proxied(ECHO) as proxied:
        caller = proxied.call(sent) if sent else proxied.call()
        proxied.let(seconds - 2)
        assert not caller.ended
        proxied.let(5)
        assert [each.status for each in caller.answers()] == statuses
        assert caller.closed


def test_a_byte_now_and_then_wins_no_time() -> None:
    with Proxied(ECHO) as proxied:
        head, body = proxied.call(b"P"), proxied.call(invocation(b"x" * 1000)[:-999])

        def drip() -> None:
            head.send(b"O")
            body.send(b"x")

        proxied.let(40, meanwhile=drip)
        assert [each.answers()[0].status for each in (head, body)] == [408, 408]


def test_a_caller_that_takes_no_answer_is_cut_off() -> None:
    with Proxied(ECHO) as proxied:
        caller = proxied.call(invocation() + invocation(), takes=False)
        proxied.let(29)
        assert not caller.closed
        assert len(proxied.triton.requests) == 1, "nothing is asked for a caller that does not read"
        proxied.let(3)
        assert caller.closed
        patient = proxied.call(invocation() + invocation(), takes=False)
        proxied.let(1)
        patient.take()
        proxied.let(1)
        assert len(patient.answers()) == 2


def test_the_connection_that_asks_for_nothing_makes_room() -> None:
    with Proxied(SILENT, Limits(connections=3)) as proxied:
        idle = proxied.call()
        busy = [proxied.call(invocation()), proxied.call(invocation())]
        busy.append(proxied.call(invocation()))
        assert idle.closed
        proxied.let(0.1)
        assert len(proxied.triton.requests) == 3
        late = proxied.call(invocation())
        assert [each.status for each in late.answers()] == [503]
        assert late.answers()[0].headers["retry-after"] == "1"
        assert not any(each.closed for each in busy)


def test_what_all_bodies_and_answers_hold_together_is_bounded() -> None:
    with Proxied(ECHO, Limits(held_bytes=1_000_000)) as proxied:
        large = [proxied.call(invocation(b"x" * 400_000)[:-1]) for _ in range(2)]
        refused = proxied.call(invocation(b"x" * 400_000)[:-1])
        assert [each.status for each in refused.answers()] == [503]
        chunked = proxied.call(in_chunks(b"x" * 400_000))
        assert [each.status for each in chunked.answers()] == [503]
        small = proxied.call(invocation(b"small"))
        proxied.let(1)
        assert [each.status for each in small.answers()] == [200]
        assert proxied.proxy.held_bytes == 800_000
        for caller in large:
            caller.hang_up()
        proxied.let(0.1)
        assert proxied.proxy.held_bytes == 0


def test_draining_ends_what_is_idle_and_lets_the_rest_finish() -> None:
    with Proxied(ECHO) as proxied:
        proxied.ask(invocation())
        idle, busy = proxied.call(), proxied.call(invocation())
        proxied.proxy.drain()
        proxied.let(1)
        assert idle.closed
        assert busy.answers()[0].headers["connection"] == "close"
        assert all(each.is_closing() for each in proxied.triton._open), "Triton waits for every connection's end"


@pytest.mark.parametrize(
    "garbage",
    [b"no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxyz", b"x" * 20_000],
)
def test_an_answer_that_is_none_is_503_and_its_connection_is_not_used_again(garbage: bytes) -> None:
    with Proxied(lambda _, peer: peer.send(garbage, 0.01)) as proxied:
        assert proxied.ask(invocation()).status == 503
        assert all(each.is_closing() for each in proxied.triton._open)
