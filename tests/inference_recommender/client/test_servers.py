"""Servers that refuse, hang or are not there, over loopback: what each becomes, through urllib3 and through boto3."""

import json
import re
import socket
import threading
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config

from aws_api.errors import NO_CREDENTIALS, AwsUnavailable
from inference_recommender.client import (
    HttpServer,
    InferenceClient,
    Refused,
    SageMakerEndpoint,
    TimedOut,
    Unreachable,
)
from inference_recommender.client.kserve import Body
from tests.inference_recommender.client.hostile import LONG_S, behaving, sending
from tests.inference_recommender.server import Answer, serving
from workloads import UsageError

OUTPUT = json.dumps({"outputs": [{"name": "O", "shape": [1], "datatype": "INT64", "data": [7]}]}).encode()
REQUEST = Body(content=b"{}")


@pytest.fixture(autouse=True)
def _an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def _http(url: str, timeout_s: float = LONG_S) -> HttpServer:
    return HttpServer(url, "m", timeout_s=timeout_s)


def _sagemaker(url: str, timeout_s: float = LONG_S) -> SageMakerEndpoint:
    """Returns an endpoint with the settings that it has against AWS, but for the address."""
    config = Config(connect_timeout=timeout_s, read_timeout=timeout_s, retries={"total_max_attempts": 1})
    return SageMakerEndpoint(
        "e", timeout_s=timeout_s, client=boto3.client("sagemaker-runtime", endpoint_url=url, config=config)
    )


BOTH = pytest.mark.parametrize(
    ("connect", "name"), [(_http, r"http://127.0.0.1:\d+/v2/models/m/infer"), (_sagemaker, "Endpoint e")]
)
Connect = Callable[..., Any]


def _failing_once(status: int, body: bytes) -> Answer:
    answers = [(status, body), (200, OUTPUT)]
    return lambda request: answers.pop(0)


@BOTH
@pytest.mark.parametrize("status", [429, 503])
def test_a_throttled_request_is_sent_again(connect: Connect, name: str, status: int) -> None:
    with serving(_failing_once(status, b"{}")) as server, connect(server.url.removesuffix("/invocations")) as place:
        assert InferenceClient(place).infer({"A": [1]})["O"].tolist() == [7]
        assert len(server.seen) == 2
        assert server.seen[0] == server.seen[1]


def test_an_endpoint_of_many_models_is_asked_for_one() -> None:
    with serving(lambda body: (200, OUTPUT)) as server:
        client = boto3.client("sagemaker-runtime", endpoint_url=server.root)
        for target in ("query_intent.tar.gz", None):
            InferenceClient(SageMakerEndpoint("e", target_model=target, client=client)).infer({"A": [1]})
    named = [headers.get("X-Amzn-SageMaker-Target-Model") for _, headers in server.heads]
    assert named == ["query_intent.tar.gz", None]


def test_a_model_that_an_endpoint_of_many_has_not_is_named_in_the_refusal() -> None:
    with serving(lambda body: (404, b'{"message": "no such model"}')) as server:
        client = boto3.client("sagemaker-runtime", endpoint_url=server.root)
        with pytest.raises(Refused, match=r"^Endpoint e, model other\.tar\.gz answered 404: .*no such model"):
            InferenceClient(SageMakerEndpoint("e", target_model="other.tar.gz", client=client)).infer({"A": [1]})


@BOTH
def test_a_bad_request_is_refused_with_the_servers_words(connect: Connect, name: str) -> None:
    refusal = b'{"error": "unexpected shape", "message": "unexpected shape"}'
    with serving(lambda body: (400, refusal)) as server, connect(server.url.removesuffix("/invocations")) as place:
        with pytest.raises(Refused, match=rf"^{name} answered 400: .*unexpected shape"):
            InferenceClient(place).infer({"A": [1]})
        assert len(server.seen) == 1


@BOTH
def test_an_answer_that_does_not_come_in_time_is_not_asked_for_again(connect: Connect, name: str) -> None:
    asked, told = threading.Semaphore(0), threading.Event()

    def never(body: bytes) -> tuple[int, bytes]:
        asked.release()
        told.wait(LONG_S)
        return 200, OUTPUT

    with serving(never) as server, connect(server.url.removesuffix("/invocations"), 0.2) as place:
        # The answer comes when its connection is closed, which the server would print.
        server.httpd.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
        with pytest.raises(TimedOut, match=rf"^{name} gave no answer within 0.2 s\.$"):
            InferenceClient(place).infer({"A": [1]})
        assert asked.acquire(timeout=LONG_S)
        assert not asked.acquire(blocking=False)
        told.set()


@BOTH
def test_a_server_that_is_not_there_is_unreachable(connect: Connect, name: str) -> None:
    with connect("http://127.0.0.1:9") as place, pytest.raises(Unreachable, match=rf"^{name} cannot be reached: "):
        place.send(REQUEST, LONG_S)


@BOTH
def test_a_connection_that_breaks_before_an_answer_is_unreachable(connect: Connect, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closing = threading.Thread(target=lambda: listener.accept()[0].close())
        closing.start()
        with connect(f"http://127.0.0.1:{listener.getsockname()[1]}") as place, pytest.raises(Unreachable):
            place.send(REQUEST, LONG_S)
        closing.join()


@BOTH
def test_an_answer_that_breaks_off_is_unreachable(connect: Connect, name: str) -> None:
    def answer_half(listener: socket.socket) -> None:
        with listener.accept()[0] as connection:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = threading.Thread(target=answer_half, args=(listener,))
        answering.start()
        with connect(f"http://127.0.0.1:{listener.getsockname()[1]}") as place, pytest.raises(Unreachable):
            place.send(REQUEST, LONG_S)
        answering.join()


@BOTH
def test_what_the_server_asks_to_wait_is_read(connect: Connect, name: str) -> None:
    busy = sending(b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n")
    with behaving(busy) as url, connect(url) as place, pytest.raises(Refused) as refused:
        place.send(REQUEST, LONG_S)
    assert refused.value.retry_after_s == 7


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
def test_what_is_no_servers_url_is_refused_at_once_without_its_secrets(url: str) -> None:
    said = (
        "A server's URL is http://HOST:PORT or https://HOST, with a path where a proxy needs one, and without "
        "credentials or a query."
    )
    with pytest.raises(UsageError, match=rf"^{re.escape(said)}$"):
        HttpServer(url, "m")


def test_a_path_before_the_models_is_kept() -> None:
    with serving(lambda body: (200, OUTPUT)) as server, HttpServer(f"{server.root}/a/b/", "m/n", "2") as place:
        place.send(REQUEST, LONG_S)
    assert server.heads[0][0] == "/a/b/v2/models/m%2Fn/versions/2/infer"


class ModelError:
    """boto3's answer where the container failed: 424, with the container's own status beside it."""

    def __init__(self, status: int) -> None:
        self._status = status

    def invoke_endpoint(self, **request: Any) -> None:
        from botocore.exceptions import ClientError

        response: Any = {
            "Error": {"Code": "ModelError", "Message": "Received server error (…) from primary. See …"},
            "OriginalStatusCode": self._status,
            "OriginalMessage": "queue is full",
            "ResponseMetadata": {"HTTPStatusCode": 424},
        }
        raise ClientError(response, "InvokeEndpoint")


@pytest.mark.parametrize(("status", "again"), [(503, True), (400, False)])
def test_an_error_of_the_container_counts_by_its_own_status(status: int, again: bool) -> None:
    with pytest.raises(Refused, match=rf"^Endpoint e answered {status}: ModelError: queue is full$") as refused:
        SageMakerEndpoint("e", client=ModelError(status)).send(REQUEST, LONG_S)
    assert refused.value.may_retry is again


def test_an_endpoint_without_credentials_says_how_to_get_some(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(AwsUnavailable, match=re.escape(NO_CREDENTIALS)):
        SageMakerEndpoint("e").send(REQUEST, LONG_S)
