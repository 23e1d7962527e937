"""An attempt ends in its time and its size whatever a server does, over urllib3 and over boto3.

The servers here would go on for half a minute; no answer depends on how fast they or this machine are.
"""

import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError

from inference_recommender.client import (
    HttpServer,
    InferenceClient,
    InferenceFailed,
    NotAnAnswer,
    SageMakerEndpoint,
    TimedOut,
    Unreachable,
)
from inference_recommender.client.attempt import CONNECT_TIMEOUT_S
from inference_recommender.client.kserve import Body
from tests.inference_recommender.client.hostile import (
    BOTH,
    LONG_S,
    Conduct,
    Connect,
    asked,
    behaving,
    deaf,
    over_http,
    over_sagemaker,
    sending,
)
from tests.inference_recommender.server import serving

TIMEOUT_S = 0.5
HANDSHAKE_TIMEOUT_S = 1.5
"""Time for TLS, or for boto3 to hash a large body, on a busy machine."""
REQUEST = Body(content=b"{}")
LARGE = Body(content=bytes(8 << 20))
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("_an_account")]
over_both = pytest.mark.parametrize("connect", BOTH, ids=["http", "sagemaker"])


@pytest.fixture
def _an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, ssl.SSLContext]) -> ssl.SSLContext:
    file, context = certificate
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(file))
    return context


@over_both
@pytest.mark.parametrize(
    "conduct",
    [
        sending(b"HTTP/1.1 200 ", b"O"),
        sending(HEAD, b"X-A: b\r\n"),
        sending(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        sending(HEAD + b"Content-Length: 100000\r\n\r\n", b" "),
        sending(HEAD + b"\r\n", b" "),
        sending(CHUNKED, b"1\r\n \r\n"),
        sending(b"HTTP/1.1 503 Busy\r\nContent-Length: 100000\r\n\r\n", b" "),
    ],
    ids=["status", "headers", "continue", "body", "endless body", "chunks", "refusal"],
)
def test_a_byte_now_and_then_does_not_prolong_an_attempt(connect: Connect, conduct: Conduct) -> None:
    with (
        behaving(conduct) as url,
        connect(url, TIMEOUT_S) as place,
        pytest.raises(TimedOut, match=r"gave no answer within 0\.5 s\.$"),
    ):
        place.send(REQUEST, LONG_S)


@over_both
def test_the_callers_deadline_ends_an_attempt_that_the_servers_timeout_would_not(connect: Connect) -> None:
    with behaving(sending(HEAD, b"X-A: b\r\n")) as url, connect(url) as place, pytest.raises(TimedOut):
        InferenceClient(place, deadline_s=TIMEOUT_S).infer({"A": [1]})


@over_both
@pytest.mark.parametrize("encrypted", [False, True])
def test_a_server_that_does_not_read_a_request_does_not_prolong_an_attempt(
    connect: Connect, encrypted: bool, trusted: ssl.SSLContext
) -> None:
    with (
        behaving(deaf, trusted if encrypted else None, receive_bytes=4096) as url,
        connect(url, HANDSHAKE_TIMEOUT_S) as place,
        pytest.raises(TimedOut),
    ):
        place.send(LARGE, LONG_S)


@over_both
def test_an_attempt_over_tls_is_bounded_too(connect: Connect, trusted: ssl.SSLContext) -> None:
    with (
        behaving(sending(HEAD + b"Content-Length: 100000\r\n\r\n", b" "), trusted) as url,
        connect(url, HANDSHAKE_TIMEOUT_S) as place,
        pytest.raises(TimedOut),
    ):
        place.send(REQUEST, LONG_S)


@over_both
def test_a_handshake_without_an_answer_is_no_connection(connect: Connect) -> None:
    with behaving(deaf) as url, connect(url.replace("http:", "https:"), TIMEOUT_S) as place:
        with pytest.raises(Unreachable, match=r"cannot be reached: no connection within 0\.5 s$") as raised:
            place.send(REQUEST, LONG_S)
        assert raised.value.may_retry


@over_both
@pytest.mark.parametrize(
    "conduct",
    [
        sending(HEAD + b"Content-Length: 999999999999999\r\n\r\n", b" "),
        sending(CHUNKED + b"ffffffffffff\r\n", bytes(65_536), every_s=0),
        sending(HEAD + b"\r\n", bytes(65_536), every_s=0),
        sending(CHUNKED, b"10000\r\n" + bytes(65_536) + b"\r\n", every_s=0),
        sending(b"HTTP/1.1 503 Busy\r\n\r\n", bytes(65_536), every_s=0),
    ],
    ids=["length", "chunk", "endless", "chunks", "refusal"],
)
def test_an_answer_over_the_bound_is_refused_and_not_kept(connect: Connect, conduct: Conduct) -> None:
    said = r"it has 999999999999999 bytes, more than 1048576|it is larger than the client takes"
    with (
        behaving(conduct) as url,
        connect(url, max_answer_bytes=1 << 20) as place,
        pytest.raises(NotAnAnswer, match=said),
    ):
        place.send(REQUEST, LONG_S)


@over_both
def test_threads_have_attempts_of_their_own(connect: Connect) -> None:
    """Half of the callers are kept waiting; the others get their own answers meanwhile."""

    def conduct(connection: socket.socket) -> None:
        while True:
            body = asked(connection)
            if b"slow" in body:
                sending_slowly(connection)
            text = b"[" + body.split(b'"data":[')[1].split(b"]")[0] + b"]"
            answer = b'{"outputs": [{"name": "O", "shape": [1], "datatype": "BYTES", "data": ' + text + b"}]}"
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(answer) + answer)

    def sending_slowly(connection: socket.socket) -> None:
        connection.sendall(HEAD)
        for _ in range(1500):
            connection.sendall(b"X-A: b\r\n")
            time.sleep(0.02)

    def ask(number: int) -> None:
        slow = number % 2 == 0
        client = InferenceClient(place, binary=False, deadline_s=TIMEOUT_S if slow else LONG_S)
        for call in range(5 if slow else 50):
            text = f"{number}-{call}" + ("slow" if slow else "")
            try:
                found.append((text, client.infer({"A": [text]})["O"].tolist()))
            except InferenceFailed as failure:
                found.append((text, type(failure)))

    found: list[Any] = []
    with behaving(conduct) as url, connect(url) as place:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 8 * 5 + 8 * 50
    assert [each for each in found if each[1] != (TimedOut if "slow" in each[0] else [each[0].encode()])] == []


def test_all_addresses_of_a_name_share_the_time_of_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    tried: list[tuple[str, float]] = []

    def never(connection: HTTPConnection) -> socket.socket:
        timeout = connection.timeout
        assert isinstance(timeout, float)
        tried.append((connection.host, timeout))
        now[0] += timeout
        raise ConnectTimeoutError(connection, "timed out")

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"10.0.0.{number}", 80)) for number in range(9)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: found)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(HTTPConnection, "_new_conn", never)
    with HttpServer("http://many.test", "m", timeout_s=2.5) as place, pytest.raises(Unreachable):
        place.send(REQUEST, LONG_S)
    assert tried == [("10.0.0.0", CONNECT_TIMEOUT_S), ("10.0.0.1", CONNECT_TIMEOUT_S), ("10.0.0.2", 0.5)]


def test_the_next_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda body: (200, b"{}")) as server:
        port = server.httpd.server_port
        look_up = socket.getaddrinfo
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.2", "127.0.0.1")]
        monkeypatch.setattr(
            socket,
            "getaddrinfo",
            lambda host, *a, **o: found if host == "two.test" else look_up(host, *a, **o),
        )
        with HttpServer(f"http://two.test:{port}", "m") as place:
            assert place.send(REQUEST, LONG_S).content == b"{}"
        assert server.heads[0][1]["Host"] == f"two.test:{port}"


@pytest.mark.parametrize(
    ("errno", "again"), [(socket.EAI_NONAME, False), (socket.EAI_AGAIN, True)], ids=["no such name", "no answer"]
)
@over_both
def test_a_name_that_does_not_exist_is_not_asked_for_again(
    connect: Connect, errno: int, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(*args: object, **options: object) -> None:
        raise socket.gaierror(errno, "not known")

    with connect("http://no.such.test") as place:
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        with pytest.raises(Unreachable, match=r"not known|http://no\.such\.test") as raised:
            place.send(REQUEST, LONG_S)
    assert raised.value.may_retry is again


@over_both
def test_an_untrusted_certificate_is_not_tried_again(
    connect: Connect, certificate: tuple[Path, ssl.SSLContext]
) -> None:
    with serving(tls=certificate[1]) as server, connect(server.root) as place:
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED") as raised:
            InferenceClient(place).infer({"A": [1]})
        assert not raised.value.may_retry
        assert server.connections == 1


@over_both
def test_a_server_without_tls_is_not_tried_again(connect: Connect) -> None:
    def conduct(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with behaving(conduct) as url, connect(url.replace("http:", "https:")) as place:
        with pytest.raises(Unreachable) as raised:
            place.send(REQUEST, LONG_S)
        assert not raised.value.may_retry


@over_both
@pytest.mark.parametrize(
    "answer",
    [b"", b"\0" * 100, b"HTTP/9.9 abc\r\n\r\n", HEAD + b"A: b\r\n" * 101, HEAD + b"A" * 70_000, CHUNKED + b"zz\r\n"],
    ids=["nothing", "zeros", "status", "headers", "header", "chunk"],
)
def test_what_is_not_http_is_a_broken_connection(connect: Connect, answer: bytes) -> None:
    with behaving(sending(answer)) as url, connect(url) as place, pytest.raises(Unreachable):
        place.send(REQUEST, LONG_S)


def test_a_clients_other_users_are_not_bounded() -> None:
    with serving(lambda body: (200, body)) as server, over_sagemaker(server.root) as place:
        client = place._client
        again = SageMakerEndpoint("e", client=client)
        assert again.send(REQUEST, LONG_S).content == b"{}"
        assert client.invoke_endpoint(EndpointName="e", Body=b"abc")["Body"].read() == b"abc"


def test_a_request_and_an_answer_of_many_records_go_over_tls(trusted: ssl.SSLContext) -> None:
    body = np.random.default_rng(7).bytes(1 << 20)
    with serving(lambda received: (200, received), tls=trusted) as server:
        with over_http(server.root) as place:
            assert place.send(Body(content=body), LONG_S).content == body
        with over_sagemaker(server.root) as endpoint:
            assert endpoint.send(Body(content=body), LONG_S).content == body


def test_a_redirection_is_a_refusal() -> None:
    elsewhere = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    with (
        behaving(sending(elsewhere)) as url,
        over_http(url) as place,
        pytest.raises(InferenceFailed, match="answered 302"),
    ):
        place.send(REQUEST, LONG_S)


def test_an_answer_is_not_unpacked() -> None:
    packed = HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"
    with behaving(sending(packed)) as url, over_http(url) as place, pytest.raises(NotAnAnswer):
        InferenceClient(place).infer({"A": [1]})
