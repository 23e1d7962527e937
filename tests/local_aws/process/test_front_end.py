"""The proxy with a real Triton, held to what Triton's own front end for SageMaker answered to the same requests.

`python -m tests.local_aws.process.record_front_end` records its answers in front_end.json. That front end listens on
all addresses, so no test starts it.
"""

import http.client
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from inference_recommender.triton_statistics import TritonStatistics
from local_aws.process.triton import TritonServer
from tests.local_aws.conftest import echo_request
from tests.quick_triton import start_triton

pytestmark = pytest.mark.integration

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("front_end.json").read_text("utf-8"))
DIFFERENT = {
    # Its C library takes what is no number for 0, and the whole body for a tensor. Later versions refuse it as we do.
    "a json-header-size that is no number": 400,
    # Its list of models is for endpoints of many.
    "the models of a multi-model endpoint": 400,
}
"""Where we answer otherwise, on purpose, and with what."""


@pytest.fixture(scope="module")
def triton(echo_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    log = tmp_path_factory.mktemp("front_end") / "log"
    with start_triton(echo_repository, default_model="echo", environment={}, log_file=log) as server:
        yield server


@pytest.mark.parametrize("recorded", RECORDED, ids=[each["name"] for each in RECORDED])
def test_the_proxy_answers_as_tritons_front_end_does(recorded: dict[str, Any], triton: TritonServer) -> None:
    address = urlsplit(triton.sagemaker_url)
    connection = http.client.HTTPConnection(address.netloc, timeout=300)
    body = recorded["body"].encode("latin-1")
    connection.request(recorded["method"], address.path + recorded["path"], body, recorded["headers"])
    answer = connection.getresponse()
    got = answer.read().decode("latin-1")
    connection.close()
    if recorded["name"] in DIFFERENT:
        assert (recorded["status"], answer.status) == (200, DIFFERENT[recorded["name"]])
        return
    assert answer.status == recorded["status"]
    if recorded["answer"]:
        assert got == recorded["answer"]
    if answer.status == 200:
        assert answer.headers["Content-Type"] == recorded["content_type"]


def test_a_real_tritons_requests_are_counted_and_wait_and_compute(triton: TritonServer) -> None:
    """Counts alone are asserted: how long they took depends on the machine."""
    statistics = TritonStatistics(f"{triton.sagemaker_url}/invocations")
    before = statistics.read()
    assert before is not None
    for number in range(3):
        body = echo_request("a", str(number)).encode()
        with urllib.request.urlopen(f"{triton.sagemaker_url}/invocations", data=body, timeout=60) as answer:
            assert answer.status == 200
    found = statistics.since(before, 3)
    assert found is not None
    assert (found.requests, found.rows_per_execution) == (3, 2.0)
    assert found.queue_ms > 0
    assert found.compute_ms.infer > 0
