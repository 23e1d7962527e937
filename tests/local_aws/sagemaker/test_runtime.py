"""An invocation has the service's limits, and everything that goes wrong behind the endpoint is a 424 in its words."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from local_aws.owner_only import SIGNATURE
from local_aws.process import model_server as model_server_module
from local_aws.process.model_server import ModelServer
from local_aws.sagemaker.runtime import TIMED_OUT, InvocationMiddleware
from tests.local_aws.wsgi_calls import Answered, Spy, ask, environ_of

PATH = "/endpoints/e/invocations"


class Model(http.server.BaseHTTPRequestHandler):
    """A model's server that answers as its test says."""

    status = 200
    answer: bytes = b"{}"
    headers_of_answer: dict[str, str] = {}
    seen: list[dict[str, str]] = []
    silent = threading.Event()

    def do_POST(self) -> None:
        self.seen.append(dict(self.headers))
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.answer == b"":
            self.silent.wait(60)
            return
        self.send_response(self.status)
        for name, value in {**self.headers_of_answer, "Content-Length": str(len(self.answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""


@pytest.fixture
def model() -> Iterator[tuple[type[Model], Any]]:
    class OneModel(Model):
        seen: list[dict[str, str]] = []
        silent = threading.Event()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OneModel)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    process: Any = SimpleNamespace(pid=1)
    url = f"http://127.0.0.1:{server.server_port}/invocations"
    yield OneModel, ModelServer(process, Path("/model"), url, (), Path("/logs/e.log"))
    OneModel.silent.set()
    server.shutdown()
    server.server_close()


def invoke(
    server: Any, body: bytes = b"{}", headers: dict[str, str] | None = None, ended: Any = None
) -> tuple[Answered, list[Any]]:
    """Invokes `server`, or `ended` first."""
    recorded: list[Any] = []
    picked = filter(None, (ended, server))
    endpoint: Any = SimpleNamespace(
        lease=lambda name: nullcontext(("AllTraffic", next(picked))), instance_count=lambda variant: 1
    )
    metrics: Any = SimpleNamespace(record=lambda *_, status, **__: recorded.append(status))
    application = InvocationMiddleware(Spy(), lambda name: endpoint, metrics, "123456789012")
    environ = environ_of("POST", PATH, headers or {}, body)
    environ[SIGNATURE] = SimpleNamespace(service="sagemaker")
    return ask(application, environ), recorded


def test_headers_of_the_contract_go_both_ways(model: Any) -> None:
    kind, server = model
    kind.headers_of_answer = {"Content-Type": "a/b", "X-Secret": "no"}
    headers = {"Content-Type": "c/d", "Accept": "a/b", "X-Amzn-SageMaker-Custom-Attributes": "there", "Cookie": "no"}
    answer, _ = invoke(server, headers=headers)
    assert dict(answer.headers) == {
        "Content-Type": "a/b",
        "x-Amzn-Invoked-Production-Variant": "AllTraffic",
        "Content-Length": "2",
    }
    (seen,) = kind.seen
    assert (seen["Content-Type"], seen["Accept"]) == ("c/d", "a/b")
    assert seen["X-Amzn-Sagemaker-Custom-Attributes"] == "there"
    assert "Cookie" not in seen


def test_a_model_that_does_not_answer_in_time_is_a_model_error(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, server = model
    kind.answer = b""
    monkeypatch.setattr(model_server_module, "INVOCATION_TIMEOUT_S", 0.1)
    answer, recorded = invoke(server)
    told = json.loads(answer.body)
    assert (answer.status, answer.headers["x-amzn-errortype"]) == (424, "ModelError")
    assert (told["OriginalStatusCode"], told["OriginalMessage"]) == (0, TIMED_OUT)
    assert told["Message"] == (
        f'Received server error (0) from primary with message "{TIMED_OUT}". See /logs/e.log for more information.'
    )
    assert recorded == [504]


def test_a_server_that_refuses_connections_passes_its_invocation_to_another(model: Any) -> None:
    _, server = model
    process: Any = SimpleNamespace(pid=1)
    ended = ModelServer(process, Path("/model"), "http://127.0.0.1:1/invocations", (), Path("/logs/e.log"))
    answered, recorded = invoke(server, ended=ended)
    assert (answered.status, recorded) == (200, [200])


def test_a_models_own_error_is_passed_on_up_to_a_length(model: Any) -> None:
    kind, server = model
    kind.status, kind.answer = 503, b"e" * 5000
    answer, recorded = invoke(server)
    told = json.loads(answer.body)
    assert (answer.status, told["OriginalStatusCode"], told["OriginalMessage"]) == (424, 503, "e" * 1024)
    assert recorded == [503]


def test_a_header_that_the_service_model_does_not_allow_is_the_callers_mistake(model: Any) -> None:
    answer, recorded = invoke(model[1], headers={"X-Amzn-SageMaker-Target-Variant": "-"})
    assert (answer.status, answer.headers["x-amzn-errortype"]) == (400, "ValidationError")
    assert "at 'targetVariant' failed to satisfy constraint" in json.loads(answer.body)["message"]
    assert recorded == []
