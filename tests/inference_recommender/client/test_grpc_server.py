"""The client over gRPC, against grpcio's server with Triton's messages. tests/stacks/ecs has a real Triton."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from inference_recommender.client import (
    InferenceClient,
    InferenceFailed,
    NotAnAnswer,
    Refused,
    Retries,
    TimedOut,
    Unreachable,
)
from inference_recommender.client.grpc_server import METHOD, GrpcServer
from tests.builders import message_of
from workloads import UsageError

pytestmark = pytest.mark.integration

ONCE = Retries(attempts=1)
Answer = Callable[[Any, Any], Any]


class Served:
    """A server on loopback; `answer` gets the message and the call's context."""

    def __init__(self) -> None:
        self.answer: Answer = echo
        self.peers: set[str] = set()

    def infer(self, message: Any, context: Any) -> Any:
        self.peers.add(context.peer())
        return self.answer(message, context)


def echo(message: Any, context: Any) -> Any:
    assert (message.model_name, message.model_version) in (("echo", ""), ("echo", "3"))
    answer = service_pb2.ModelInferResponse(model_name=message.model_name)
    wanted = {output.name for output in message.outputs}
    for tensor, raw in zip(message.inputs, message.raw_input_contents, strict=True):
        if tensor.name in wanted or not wanted:
            answer.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            answer.raw_output_contents.append(raw)
    return answer


def refusing(code: grpc.StatusCode) -> Answer:
    return lambda message, context: context.abort(code, "no such tensor")


@contextmanager
def running(served: Served, tls: Any = None) -> Iterator[int]:
    """Yields the port of a server that answers as `served` says."""
    handler = grpc.unary_unary_rpc_method_handler(
        lambda message, context: served.infer(message, context),
        request_deserializer=service_pb2.ModelInferRequest.FromString,
        response_serializer=service_pb2.ModelInferResponse.SerializeToString,
    )
    service, method = METHOD.strip("/").split("/")
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
        port = server.add_secure_port("127.0.0.1:0", tls) if tls else server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield int(port)
        server.stop(None).wait()


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[Served, str]]:
    served = Served()
    with running(served) as port:
        yield served, f"grpc://127.0.0.1:{port}"


@pytest.fixture
def served(started: tuple[Served, str]) -> Served:
    served, _ = started
    served.answer, served.peers = echo, set()
    return served


@pytest.fixture
def url(started: tuple[Served, str], served: Served) -> str:
    return started[1]


def test_tensors_go_there_and_back_in_their_types(url: str) -> None:
    inputs = {
        "TEXT": [["runing sheos"], ["süß"]],
        "NUMBERS": np.array([[0.1, 2], [3, -4]], np.float16),
        "IDS": np.array([[1], [2]], np.int32),
    }
    with GrpcServer(url, "echo", "3") as server:
        found = InferenceClient(server).infer(inputs)
        assert found["TEXT"].tolist() == [[b"runing sheos"], ["süß".encode()]]
        assert found["NUMBERS"].dtype == np.float16
        assert found["NUMBERS"].tolist() == inputs["NUMBERS"].tolist()  # type: ignore[attr-defined]
        assert found["IDS"].dtype == np.int32
        assert list(InferenceClient(server).infer(inputs, ["IDS"])) == ["IDS"]


def test_parameters_keep_their_types(served: Served, url: str) -> None:
    received = {}

    def keep(message: Any, context: Any) -> Any:
        received.update(
            {name: getattr(each, each.WhichOneof("parameter_choice")) for name, each in message.parameters.items()}
        )
        return echo(message, context)

    served.answer = keep
    parameters: dict[str, str | int | float | bool] = {
        "model": "intents",
        "top_k": 3,
        "temperature": 0.5,
        "do_sample": True,
    }
    with GrpcServer(url, "echo") as server:
        InferenceClient(server).infer({"TEXT": [["a"]]}, parameters=parameters)
    assert received == parameters


@pytest.mark.parametrize(
    ("code", "status", "may_retry"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 400, False),
        (grpc.StatusCode.NOT_FOUND, 404, False),
        (grpc.StatusCode.PERMISSION_DENIED, 403, False),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 429, True),
        (grpc.StatusCode.INTERNAL, 500, True),
        (grpc.StatusCode.UNIMPLEMENTED, 501, False),
    ],
)
def test_a_grpc_error_has_the_status_of_http(
    served: Served, url: str, code: grpc.StatusCode, status: int, may_retry: bool
) -> None:
    served.answer = refusing(code)
    with GrpcServer(url, "echo") as server, pytest.raises(Refused) as refused:
        InferenceClient(server, retries=ONCE).infer({"TEXT": [["a"]]})
    assert (refused.value.status, refused.value.may_retry) == (status, may_retry)
    assert str(refused.value) == f"{url} echo answered {status}: {code.name}: no such tensor"


def test_a_timeout_is_not_retried(served: Served, url: str) -> None:
    release, requests = threading.Event(), []

    def waiting(message: Any, context: Any) -> Any:
        requests.append(1)
        release.wait(30)
        return echo(message, context)

    served.answer = waiting
    with GrpcServer(url, "echo", timeout_s=0.3) as server, pytest.raises(TimedOut) as caught:
        InferenceClient(server).infer({"TEXT": [["a"]]})
    release.set()
    assert str(caught.value) == f"{url} echo gave no answer within 0.3 s."
    assert len(requests) <= 1  # None if the machine is too busy to deliver the request in time.


def test_a_server_that_is_down_cannot_be_reached() -> None:
    with GrpcServer("grpc://127.0.0.1:9", "echo") as server, pytest.raises(Unreachable) as caught:
        InferenceClient(server, retries=ONCE).infer({"TEXT": [["a"]]})
    assert caught.value.may_retry
    assert str(caught.value).startswith("grpc://127.0.0.1:9 echo cannot be reached: ")


def test_connections_take_turns(served: Served, url: str) -> None:
    """A balancer of connections then gives requests to several tasks."""
    with GrpcServer(url, "echo", connections=3) as server:
        for _ in range(6):
            InferenceClient(server).infer({"TEXT": [["a"]]})
    assert len(served.peers) == 3


def test_an_answer_over_the_limit_is_rejected(url: str) -> None:
    with GrpcServer(url, "echo", max_answer_bytes=1000) as server, pytest.raises(NotAnAnswer) as caught:
        InferenceClient(server).infer({"TEXT": [["a" * 2000]]})
    assert "it is larger than max_answer_bytes" in str(caught.value)


def _garbled(message: Any, context: Any) -> Any:
    answer = echo(message, context)
    answer.outputs[0].shape[0] = 7
    return answer


def _typed(message: Any, context: Any) -> Any:
    answer = echo(message, context)
    del answer.raw_output_contents[:]
    return answer


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (_garbled, "output 'TEXT' has 1 elements"),
        (_typed, "only 0 of its 1 outputs are raw bytes"),
    ],
)
def test_a_wrong_answer_is_rejected(served: Served, url: str, answer: Answer, why: str) -> None:
    served.answer = answer
    with GrpcServer(url, "echo") as server, pytest.raises(InferenceFailed, match=why):
        InferenceClient(server).infer({"TEXT": [["a"]]})


def test_json_is_rejected_before_a_request_is_sent(url: str) -> None:
    with GrpcServer(url, "echo") as server, pytest.raises(UsageError) as refused:
        InferenceClient(server, binary=False).infer({"TEXT": [["a"]]})
    assert str(refused.value) == ("gRPC has no JSON form of a request. Create the InferenceClient with binary=True.")


@pytest.mark.parametrize(
    "wrong", ["http://h:8001", "grpc://h", "grpc://h:x", "h:8001", "grpc://h:1/path", "grpc://u@h:1"]
)
def test_a_url_is_of_a_host_and_a_port(wrong: str) -> None:
    assert message_of(UsageError, GrpcServer, wrong, "echo") == (
        f"A gRPC server's URL is grpc://HOST:PORT, or grpcs://HOST:PORT with TLS. Got '{wrong}'."
    )


def test_tls_trusts_the_given_certificates(served: Served, certificate: tuple[Path, Any]) -> None:
    file, _ = certificate
    pair = (file.with_name("key.pem").read_bytes(), file.read_bytes())
    with running(served, grpc.ssl_server_credentials([pair])) as port:
        url = f"grpcs://127.0.0.1:{port}"
        with GrpcServer(url, "echo", certificates=file.read_bytes()) as server:
            assert InferenceClient(server).infer({"TEXT": [["a"]]})["TEXT"].item() == b"a"
        with GrpcServer(url, "echo") as server, pytest.raises(Unreachable) as caught:
            InferenceClient(server).infer({"TEXT": [["a"]]})
    assert not caught.value.may_retry
