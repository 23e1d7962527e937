"""The client against a real Triton over HTTP. tests/local_aws has a real Triton behind a SageMaker endpoint."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from inference_recommender.client import HttpServer, InferenceClient, Refused
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN
from tests.quick_triton import over_tcp, start_triton

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


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("triton")
    version = folder / "models" / "echo" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL, "utf-8")
    (version.parent / "config.pbtxt").write_text(CONFIG, "utf-8")
    with start_triton(folder / "models", "echo") as server, over_tcp(server) as url:
        yield url


@pytest.mark.parametrize("binary", [True, False])
def test_tensors_go_there_and_back(url: str, binary: bool) -> None:
    numbers = np.array([[0.1, 2], [3, -4]], np.float32)
    with HttpServer(url, "echo") as server:
        client = InferenceClient(server, binary=binary)
        found = client.infer({"TEXT": [["runing sheos"], ["süß"]], "NUMBER": numbers})
    assert found["TEXT_BACK"].tolist() == [[b"runing sheos"], ["süß".encode()]]
    assert found["DOUBLE"].dtype == np.float32
    assert found["DOUBLE"].tolist() == (numbers * 2).tolist()


def test_only_the_named_outputs_are_returned(url: str) -> None:
    inputs = {"TEXT": [["a"]], "NUMBER": np.ones((1, 3), np.float32)}
    with HttpServer(url, "echo") as server:
        assert list(InferenceClient(server).infer(inputs, ["DOUBLE"])) == ["DOUBLE"]


def test_an_error_has_the_message_of_triton(url: str) -> None:
    with HttpServer(url, "echo") as server, pytest.raises(Refused) as refused:
        InferenceClient(server).infer({"TEXT": [["a"]]})
    assert refused.value.status == 400
    assert "expected 2 inputs but got 1 inputs for model 'echo'" in str(refused.value)
