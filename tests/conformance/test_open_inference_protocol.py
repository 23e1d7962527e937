"""The Open Inference Protocol's OpenAPI schema on answers of the Neuron server and of an endpoint of the local account.

open_inference.json has the required members and types of specification/protocol/open_inference_rest.yaml. Payloads
named after KServe are those of test/e2e/data in kserve/kserve, with the model's own input.
"""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate

from tests.conformance.conftest import Invoke
from tests.containers.neuron.neuron_server import SERVING, RunningServer, make_onnx, running
from tests.local_aws.conftest import echo_request

pytestmark = [pytest.mark.slow, pytest.mark.integration]

MODEL = f"/v2/models/{SERVING.model}"
PAYLOADS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("open_inference.json").read_text("utf-8"))
ACCEPTED, REFUSED = PAYLOADS["accepted"], PAYLOADS["refused"]


def check_answer(content: Any, rows: int) -> None:
    validate(content, PAYLOADS["answer"])
    for tensor in content["outputs"]:
        assert len(tensor["data"]) == math.prod(tensor["shape"])
        assert tensor["shape"][0] == rows


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = make_onnx(tmp_path_factory.mktemp("oip") / "model", SERVING)
    with running(folder, folder.with_name("server.log")) as started:
        yield started


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", f"{MODEL}/ready"])
def test_neuron_health(server: RunningServer, path: str) -> None:
    assert server.request("GET", path)[0] == 200


@pytest.mark.parametrize("name", ACCEPTED)
def test_neuron_answer(server: RunningServer, name: str) -> None:
    request = ACCEPTED[name]
    status, content = server.request("POST", f"{MODEL}/infer", json.dumps(request).encode())
    assert (status, content.get("id")) == (200, request.get("id"))
    assert "outputs" not in request or [each["name"] for each in content["outputs"]] == ["LABEL"]
    check_answer(content, rows=request["inputs"][0]["shape"][0])


@pytest.mark.parametrize("name", REFUSED)
def test_neuron_refusal(server: RunningServer, name: str) -> None:
    status, content = server.request("POST", f"{MODEL}/infer", json.dumps(REFUSED[name]).encode())
    assert status == 400
    validate(content, PAYLOADS["error"])


@pytest.mark.xfail(reason="The Neuron server has only the routes that SageMaker and ECS call: health and inference.")
@pytest.mark.parametrize("path", ["/v2", MODEL, f"{MODEL}/versions/1", f"{MODEL}/versions/1/ready"])
def test_neuron_metadata(server: RunningServer, path: str) -> None:
    assert server.request("GET", path)[0] == 200


@pytest.fixture(scope="module")
def invoke(start_endpoint: Callable[..., Invoke]) -> Invoke:
    return start_endpoint("oip")


def test_local_answer(invoke: Invoke) -> None:
    check_answer(json.load(invoke(echo_request("a", "b"))["Body"]), rows=2)


@pytest.mark.parametrize("name", REFUSED)
def test_local_refusal(invoke: Invoke, runtime: Any, name: str) -> None:
    with pytest.raises(runtime.exceptions.ModelError) as refused:
        invoke(json.dumps(REFUSED[name]))
    assert refused.value.response["OriginalStatusCode"] == 400
    validate(json.loads(refused.value.response["OriginalMessage"]), PAYLOADS["error"])
