"""The client turns each failure of a server into one of its errors, against real servers on loopback."""

import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from aws_api.errors import NO_CREDENTIALS, AwsUnavailable
from inference_recommender.client import (
    HttpServer,
    InferenceClient,
    NotAnAnswer,
    Refused,
    SageMakerEndpoint,
    TimedOut,
    Unreachable,
)
from inference_recommender.client.servers import CONNECT_TIMEOUT_S, MAX_ANSWER_BYTES, config
from inference_recommender.kserve import Body
from tests.inference_recommender.server import serving
from workloads import UsageError

LONG_S = 30.0
"""Limit for a test that hangs. No result depends on it."""
TIMEOUT_S = 0.5
OUTPUT = json.dumps({"outputs": [{"name": "O", "shape": [1], "datatype": "INT64", "data": [7]}]}).encode()
REQUEST = Body(content=b"{}")
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
Conduct = Callable[[socket.socket], None]
Connect = Callable[..., Any]

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("credentials")]


def over_http(url: str, timeout_s: float = LONG_S, max_answer_bytes: int = MAX_ANSWER_BYTES) -> HttpServer:
    return HttpServer(url, "m", timeout_s=timeout_s, max_answer_bytes=max_answer_bytes)


def over_sagemaker(url: str, timeout_s: float = LONG_S, max_answer_bytes: int = MAX_ANSWER_BYTES) -> SageMakerEndpoint:
    client = boto3.client("sagemaker-runtime", endpoint_url=url, config=config(timeout_s))
    return SageMakerEndpoint("e", timeout_s=timeout_s, client=client, max_answer_bytes=max_answer_bytes)


both = pytest.mark.parametrize(
    ("connect", "name"),
    [
        pytest.param(over_http, r"https?://127.0.0.1:\d+/v2/models/m/infer", id="http"),
        pytest.param(over_sagemaker, "Endpoint e", id="sagemaker"),
    ],
)


@contextmanager
def behaving(conduct: Conduct, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Yields the URL of a server that runs `conduct` on each connection."""

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            conduct(tls.wrap_socket(connection, server_side=True) if tls else connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept
    accepting.join(LONG_S)


def read_request(connection: socket.socket) -> None:
    received = b""
    while b"\r\n\r\n" not in received:
        if not (part := connection.recv(65_536)):
            raise OSError("the client closed the connection")
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(re.findall(rb"content-length: *(\d+)", head.lower())[0])
    while len(body) < length:
        body += connection.recv(65_536)


def sending(first: bytes, again: bytes = b"", every_s: float = 0.0) -> Conduct:
    """Answers a request with `first`, then repeats `again`."""

    def conduct(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(first)
        end = time.monotonic() + LONG_S
        while again and time.monotonic() < end:
            connection.sendall(again)
            time.sleep(every_s)

    return conduct


def silent(connection: socket.socket) -> None:
    time.sleep(LONG_S)


@both
@pytest.mark.parametrize("status", [429, 503])
def test_a_throttled_request_is_sent_again(connect: Connect, name: str, status: int) -> None:
    answers = [(status, b"{}"), (200, OUTPUT)]
    with serving(lambda body: answers.pop(0)) as server, connect(server.root) as place:
        assert InferenceClient(place).infer({"A": [1]})["O"].tolist() == [7]
    assert len(server.seen) == 2
    assert server.seen[0] == server.seen[1]


@both
def test_the_error_of_a_refused_request_has_the_message_of_the_server(connect: Connect, name: str) -> None:
    refusal = b'{"error": "unexpected shape", "message": "unexpected shape"}'
    with serving(lambda body: (400, refusal)) as server, connect(server.root) as place:
        with pytest.raises(Refused, match=rf"^{name} answered 400: .*unexpected shape"):
            InferenceClient(place).infer({"A": [1]})
        assert len(server.seen) == 1


@both
@pytest.mark.parametrize(
    "conduct",
    [silent, sending(b""), sending(HEAD), sending(HEAD + b"Content-Length: 100\r\n\r\n{")],
    ids=["connection", "request", "headers", "body"],
)
def test_an_attempt_without_an_answer_in_time_is_not_retried(connect: Connect, name: str, conduct: Conduct) -> None:
    def wait(connection: socket.socket) -> None:
        conduct(connection)
        silent(connection)

    with behaving(wait) as url, connect(url, TIMEOUT_S) as place:
        with pytest.raises(TimedOut, match=rf"^{name} gave no answer within 0\.5 s\.$") as raised:
            place.send(REQUEST, LONG_S)
        assert not raised.value.may_retry


@both
def test_an_endless_answer_ends_with_the_time_of_an_attempt(connect: Connect, name: str) -> None:
    answer = sending(HEAD + b"\r\n", bytes(1 << 20), every_s=0.05)
    with behaving(answer) as url, connect(url, TIMEOUT_S) as place, pytest.raises(TimedOut):
        place.send(REQUEST, LONG_S)


def test_an_attempt_over_http_ends_with_the_deadline_of_its_call() -> None:
    with behaving(silent) as url, over_http(url) as place, pytest.raises(TimedOut):
        InferenceClient(place, deadline_s=TIMEOUT_S).infer({"A": [1]})


@both
@pytest.mark.parametrize(
    "conduct",
    [
        sending(HEAD + b"Content-Length: 999999999999999\r\n\r\n", b" "),
        sending(CHUNKED + b"ffffffffffff\r\n", bytes(65_536)),
        sending(HEAD + b"\r\n", bytes(65_536)),
        sending(CHUNKED, b"10000\r\n" + bytes(65_536) + b"\r\n"),
    ],
    ids=["length", "chunk", "endless", "chunks"],
)
def test_an_answer_over_the_limit_is_rejected(connect: Connect, name: str, conduct: Conduct) -> None:
    message = r"it has 999999999999999 bytes, more than 1048576|it is larger than max_answer_bytes"
    with (
        behaving(conduct) as url,
        connect(url, max_answer_bytes=1 << 20) as place,
        pytest.raises(NotAnAnswer, match=message),
    ):
        place.send(REQUEST, LONG_S)


@both
def test_a_server_that_is_down_cannot_be_reached(connect: Connect, name: str) -> None:
    with connect("http://127.0.0.1:9") as place:
        with pytest.raises(Unreachable, match=rf"^{name} cannot be reached: ") as raised:
            place.send(REQUEST, LONG_S)
        assert raised.value.may_retry


@both
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0" * 100,
        b"HTTP/9.9 abc\r\n\r\n",
        HEAD + b"A: b\r\n" * 101,
        HEAD + b"A" * 70_000,
        CHUNKED + b"zz\r\n",
        HEAD + b"Content-Length: 100\r\n\r\n{",
    ],
    ids=["nothing", "zeros", "status", "headers", "header", "chunk", "half"],
)
def test_a_broken_answer_is_a_broken_connection(connect: Connect, name: str, answer: bytes) -> None:
    with behaving(sending(answer)) as url, connect(url) as place, pytest.raises(Unreachable):
        place.send(REQUEST, LONG_S)


@both
@pytest.mark.parametrize(
    ("errno", "again"), [(socket.EAI_NONAME, False), (socket.EAI_AGAIN, True)], ids=["no such name", "no answer"]
)
def test_an_unknown_host_name_is_not_retried(
    connect: Connect, name: str, errno: int, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(*args: object, **options: object) -> None:
        raise socket.gaierror(errno, "not known")

    with connect("http://no.such.test") as place:
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        with pytest.raises(Unreachable, match=r"not known|http://no\.such\.test") as raised:
            place.send(REQUEST, LONG_S)
    assert raised.value.may_retry is again


@both
def test_an_untrusted_certificate_is_not_retried(
    connect: Connect, name: str, certificate: tuple[Path, ssl.SSLContext]
) -> None:
    with serving(tls=certificate[1]) as server, connect(server.root) as place:
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED") as raised:
            InferenceClient(place).infer({"A": [1]})
        assert not raised.value.may_retry
        assert server.connections == 1


@both
def test_a_server_without_tls_is_not_retried(connect: Connect, name: str) -> None:
    def conduct(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with behaving(conduct) as url, connect(url.replace("http:", "https:")) as place:
        with pytest.raises(Unreachable) as raised:
            place.send(REQUEST, LONG_S)
        assert not raised.value.may_retry


def test_an_address_that_accepts_no_connection_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*args: Any, **options: Any) -> None:
        timeouts.append(args[1] if len(args) > 1 else options["timeout"])
        raise TimeoutError

    timeouts: list[float] = []
    monkeypatch.setattr("urllib3.util.connection.create_connection", connect)
    with HttpServer("http://server.test", "m") as place, pytest.raises(Unreachable, match="no connection within 2 s"):
        place.send(REQUEST, LONG_S)
    assert timeouts == [CONNECT_TIMEOUT_S]


@both
def test_retry_after_is_read(connect: Connect, name: str) -> None:
    busy = sending(b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n")
    with behaving(busy) as url, connect(url) as place, pytest.raises(Refused) as refused:
        place.send(REQUEST, LONG_S)
    assert refused.value.retry_after_s == 7


@both
def test_a_false_size_of_the_binary_header_is_not_an_answer(connect: Connect, name: str) -> None:
    binary = b"Content-Type: application/vnd.sagemaker-triton.binary+json;json-header-size=x\r\n"
    answer = HEAD + binary + b"Inference-Header-Content-Length: x\r\nContent-Length: 2\r\n\r\n{}"
    message = "the size of its JSON header is 'x'"
    with behaving(sending(answer)) as url, connect(url) as place, pytest.raises(NotAnAnswer, match=message):
        place.send(REQUEST, LONG_S)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host:8000",
        "ftp://host",
        "http://",
        "http://user:secret@host",
        "http://host/?q=1",
        "http://a:b",
        "http://[::1",
    ],
)
def test_a_wrong_url_is_rejected_without_its_secrets(url: str) -> None:
    message = (
        "A server's URL is http://HOST:PORT or https://HOST, with a path where a proxy needs one, and without "
        "credentials or a query."
    )
    with pytest.raises(UsageError, match=rf"^{re.escape(message)}$"):
        HttpServer(url, "m")


def test_a_path_before_the_models_is_kept() -> None:
    with serving(lambda body: (200, OUTPUT)) as server, HttpServer(f"{server.root}/a/b/", "m/n", "2") as place:
        place.send(REQUEST, LONG_S)
    assert server.heads[0][0] == "/a/b/v2/models/m%2Fn/versions/2/infer"


def test_a_model_of_a_multi_model_endpoint_is_named() -> None:
    with serving(lambda body: (404, b'{"message": "no such model"}')) as server:
        client = boto3.client("sagemaker-runtime", endpoint_url=server.root)
        with pytest.raises(Refused, match=r"^Endpoint e, model other\.tar\.gz answered 404: .*no such model"):
            SageMakerEndpoint("e", target_model="other.tar.gz", client=client).send(REQUEST, LONG_S)
        with pytest.raises(Refused):
            SageMakerEndpoint("e", client=client).send(REQUEST, LONG_S)
    models = [headers.get("X-Amzn-SageMaker-Target-Model") for _, headers in server.heads]
    assert models == ["other.tar.gz", None]


class FailingContainer:
    """A boto3 client whose container fails: 424, and the container's own status."""

    def __init__(self, status: int) -> None:
        self._status = status

    def invoke_endpoint(self, **request: Any) -> None:
        response: Any = {
            "Error": {"Code": "ModelError", "Message": "Received server error (…) from primary. See …"},
            "OriginalStatusCode": self._status,
            "OriginalMessage": "queue is full",
            "ResponseMetadata": {"HTTPStatusCode": 424},
        }
        raise ClientError(response, "InvokeEndpoint")


@pytest.mark.parametrize(("status", "again"), [(503, True), (400, False)])
def test_an_error_of_the_container_has_its_own_status(status: int, again: bool) -> None:
    with pytest.raises(Refused, match=rf"^Endpoint e answered {status}: ModelError: queue is full$") as refused:
        SageMakerEndpoint("e", client=FailingContainer(status)).send(REQUEST, LONG_S)
    assert refused.value.may_retry is again


def test_an_endpoint_without_credentials_says_how_to_get_some(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(AwsUnavailable, match=re.escape(NO_CREDENTIALS)):
        SageMakerEndpoint("e").send(REQUEST, LONG_S)
