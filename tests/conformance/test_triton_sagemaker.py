"""The tests of Triton's qa/L0_sagemaker/sagemaker_test.py against an endpoint of the local account.

Requests go through InvokeEndpoint, where the original sends them to the container. sm_model adds and subtracts.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

from tests.conformance.conftest import Invoke
from tests.local_aws.conftest import BUCKET, texts_archive

pytestmark = [pytest.mark.slow, pytest.mark.integration]

MODEL = Path(__file__).parent / "sm_model"
BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
VALUES = np.arange(16, dtype=np.int32).reshape(1, 16)
RESULTS = {"OUTPUT0": 2 * VALUES, "OUTPUT1": 0 * VALUES}
SHAPE = {"datatype": "INT32", "shape": [1, 16]}
OUTPUTS = [{"name": name, **SHAPE, "data": values[0].tolist()} for name, values in RESULTS.items()]
EXPECTED = {"model_name": "sm_model", "model_version": "1", "outputs": OUTPUTS}


@pytest.fixture(scope="module")
def invoke(client: Callable[[str], Any], start_endpoint: Callable[..., Invoke]) -> Invoke:
    files = {"sm_model/config.pbtxt": "config.pbtxt", "sm_model/1/model.py": "model.py.txt"}
    archive = texts_archive({name: (MODEL / file).read_text("utf-8") for name, file in files.items()})
    client("s3").put_object(Bucket=BUCKET, Key="sm_model.tar.gz", Body=archive)
    return start_endpoint("sm-model", archive="sm_model.tar.gz")


def generated(binary_input: bool = False, binary_output: bool = False) -> tuple[bytes, int | None]:
    """Returns the request that tritonclient generates, and the size of its header."""
    inputs = [InferInput(name, SHAPE["shape"], SHAPE["datatype"]) for name in ("INPUT0", "INPUT1")]
    for number, each in enumerate(inputs):
        each.set_data_from_numpy(VALUES, binary_data=binary_input and number == 0)
    outputs = [InferRequestedOutput(name, binary_data=binary_output and name == "OUTPUT0") for name in RESULTS]
    request, size = InferenceServerClient.generate_request_body(inputs, outputs=outputs)
    return bytes(request), size


def test_direct_inference(invoke: Invoke) -> None:
    inputs = [{"name": name, **SHAPE, "data": VALUES[0].tolist()} for name in ("INPUT0", "INPUT1")]
    assert json.load(invoke(json.dumps({"inputs": inputs}))["Body"]) == EXPECTED


@pytest.mark.parametrize("binary", [False, True], ids=["request", "request_binary"])
def test_inference_client_generated_request(invoke: Invoke, binary: bool) -> None:
    request, size = generated(binary_input=binary)
    assert json.load(invoke(request, *([f"{BINARY}{size}"] if binary else []))["Body"]) == EXPECTED


@pytest.mark.parametrize("binary", [False, True], ids=["response", "response_binary"])
def test_inference_client_generated_response(invoke: Invoke, binary: bool) -> None:
    answer = invoke(generated(binary_output=binary)[0])
    size = int(answer["ContentType"].removeprefix(BINARY)) if binary else None
    result = InferenceServerClient.parse_response_body(answer["Body"].read(), header_length=size)
    assert all(np.array_equal(result.as_numpy(name), values) for name, values in RESULTS.items())


MALFORMED = {
    "malformed_binary_header": f"additional-string/{BINARY}{{size}}",
    "malformed_binary_header_not_number": f"{BINARY}additional-string{{size}}",
    "malformed_binary_header_negative_number": f"{BINARY}-123",
    "malformed_binary_header_large_number": f"{BINARY}12345",
    "malformed_binary_header_out_of_range": f"{BINARY}99999999999",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_binary_header(invoke: Invoke, runtime: Any, name: str) -> None:
    request, size = generated(binary_input=True)
    with pytest.raises(runtime.exceptions.ModelError) as refused:
        invoke(request, MALFORMED[name].format(size=size))
    assert refused.value.response["OriginalStatusCode"] == 400
    assert json.load(invoke(generated()[0])["Body"]) == EXPECTED, "the server is alive"
