"""The client against a real Triton: over HTTP, and as a SageMaker endpoint through boto3."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
import numpy as np
import pytest

from inference_recommender.client import HttpServer, InferenceClient, Refused, SageMakerEndpoint
from inference_recommender.client.inference import Server
from inference_recommender.kserve import Body, decode
from inference_recommender.payloads import request_bodies, tensors
from local_aws.process.triton import TritonServer
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN
from tests.quick_triton import EXTRA, await_counts, over_tcp, start_triton, statistics

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not DEFAULT_TOOLCHAIN.exists(), reason="needs the Triton environment: make setup"),
]

CONFIG = """
backend: "python"
max_batch_size: 4
input [
  {name: "TEXT" data_type: TYPE_STRING dims: [1]},
  {name: "NUMBER" data_type: TYPE_FP32 dims: [-1]}
]
output [
  {name: "TEXT_BACK" data_type: TYPE_STRING dims: [1]},
  {name: "DOUBLE" data_type: TYPE_FP32 dims: [-1]}
]
instance_group [{count: 1 kind: KIND_CPU}]
"""

MODEL = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        tensor = pb.get_input_tensor_by_name
        return [
            pb.InferenceResponse([
                pb.Tensor("TEXT_BACK", tensor(request, "TEXT").as_numpy()),
                pb.Tensor("DOUBLE", tensor(request, "NUMBER").as_numpy() * 2),
            ])
            for request in requests
        ]
"""


UPPER_CONFIG = """
backend: "python"
max_batch_size: 4
input [{name: "TEXT" data_type: TYPE_STRING dims: [1]}]
output [{name: "UPPER" data_type: TYPE_STRING dims: [1]}]
instance_group [{count: 1 kind: KIND_CPU}]
"""

UPPER = """
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        texts = [pb.get_input_tensor_by_name(request, "TEXT").as_numpy() for request in requests]
        return [
            pb.InferenceResponse([pb.Tensor("UPPER", np.array([[row[0].upper()] for row in rows], object))])
            for rows in texts
        ]
"""


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder: Path = tmp_path_factory.mktemp("triton")
    version = folder / "models" / "echo" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL, "utf-8")
    (version.parent / "config.pbtxt").write_text(CONFIG, "utf-8")
    upper = folder / "models" / "upper"
    (upper / "1").mkdir(parents=True)
    (upper / "1" / "model.py").write_text(UPPER, "utf-8")
    (upper / "config.pbtxt").write_text(UPPER_CONFIG, "utf-8")
    with start_triton(
        folder / "models",
        default_model="echo",
        environment={EXTRA: "--load-model=upper"},
        log_file=folder / "triton.log",
    ) as server:
        yield server


@pytest.fixture(scope="module")
def triton_url(triton: TritonServer) -> Iterator[str]:
    with over_tcp(triton) as url:
        yield url


@pytest.fixture(scope="module")
def runtime_url(triton: TritonServer) -> Iterator[str]:
    """Passes InvokeEndpoint's body and Content-Type to the container and back, as SageMaker's runtime does."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = triton.invoke(body, {"Content-Type": self.headers["Content-Type"]})
            content, kind = answer.body, answer.content_type
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    thread = threading.Thread(target=lambda: httpd.serve_forever(0.05), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    httpd.server_close()
    thread.join()


@pytest.fixture(params=["http", "sagemaker"])
def server(
    request: pytest.FixtureRequest, triton_url: str, runtime_url: str, monkeypatch: pytest.MonkeyPatch
) -> Server:
    if request.param == "http":
        return HttpServer(triton_url, "echo")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    client = boto3.client("sagemaker-runtime", region_name="us-east-1", endpoint_url=runtime_url)
    return SageMakerEndpoint("echo", client=client)


@pytest.mark.parametrize("binary", [True, False])
def test_tensors_go_there_and_back(server: Server, binary: bool) -> None:
    numbers = np.array([[0.1, 2], [3, -4]], np.float32)
    found = InferenceClient(server, binary=binary).infer({"TEXT": [["runing sheos"], ["süß"]], "NUMBER": numbers})
    assert found["TEXT_BACK"].tolist() == [[b"runing sheos"], ["süß".encode()]]
    assert found["DOUBLE"].dtype == np.float32
    assert found["DOUBLE"].tolist() == (numbers * 2).tolist()


def test_only_the_named_outputs_are_returned(server: Server) -> None:
    inputs = {"TEXT": [["a"]], "NUMBER": np.ones((1, 3), np.float32)}
    assert list(InferenceClient(server).infer(inputs, ["DOUBLE"])) == ["DOUBLE"]


@pytest.mark.parametrize("binary", [True, False])
def test_requests_of_several_rows_get_the_answers_of_single_rows(
    triton: TritonServer, triton_url: str, binary: bool
) -> None:
    """Triton itself counts the rows: four to each request that a load test sends."""
    rows = [{"text": f"query {number}"} for number in range(10)]
    bodies = request_bodies(rows, 4)

    def counted() -> int:
        return int(statistics(triton, "upper")["inference_count"])

    before = counted()
    with HttpServer(triton_url, "upper") as server:
        client = InferenceClient(server, binary=binary)
        if binary:
            asked = [client.infer(tensors(*rows[first : first + 4]))["UPPER"] for first in (0, 4)]
        else:
            asked = [decode(server.send(Body(content=body), 5.0))["UPPER"] for body in bodies]
        rows_asked = 4 * len(asked)
        await_counts(counted, before + rows_asked)
        for answers, first in zip(asked, (0, 4, 8), strict=False):
            alone = [client.infer(tensors(rows[place % 10]))["UPPER"].item() for place in range(first, first + 4)]
            assert answers.ravel().tolist() == alone
            assert alone[0] == b"QUERY %d" % first
        await_counts(counted, before + 2 * rows_asked)  # Nothing is left for the next test to count.


def test_an_error_has_the_message_of_triton(triton_url: str) -> None:
    with HttpServer(triton_url, "echo") as server, pytest.raises(Refused) as refused:
        InferenceClient(server).infer({"TEXT": [["a"]]})
    assert refused.value.status == 400
    assert "expected 2 inputs but got 1 inputs for model 'echo'" in str(refused.value)
