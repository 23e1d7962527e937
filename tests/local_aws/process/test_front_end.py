"""Invocations of a real Triton get the answers of Triton's own front end for SageMaker.

front_end.json has the requests and the answers of a Triton with `--allow-sagemaker=true` and the echo model. That front
end listens on all addresses, so no test starts it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_aws.process.triton import TritonServer
from tests.quick_triton import start_triton

pytestmark = pytest.mark.integration

RECORDED: list[dict[str, Any]] = [
    each
    for each in json.loads(Path(__file__).with_name("front_end.json").read_text("utf-8"))
    if (each["method"], each["path"]) == ("POST", "/invocations")
]
DIFFERENT = {"a json-header-size that is no number": 400}
"""The recorded C library reads text as 0 and takes the whole body for a tensor. Later versions reject it."""


@pytest.fixture(scope="module")
def triton(echo_repository: Path) -> Iterator[TritonServer]:
    with start_triton(echo_repository, "echo") as server:
        yield server


@pytest.mark.parametrize("recorded", RECORDED, ids=[each["name"] for each in RECORDED])
def test_an_invocation_is_answered_as_by_tritons_front_end(recorded: dict[str, Any], triton: TritonServer) -> None:
    answer = triton.invoke(recorded["body"].encode("latin-1"), recorded["headers"])
    if recorded["name"] in DIFFERENT:
        assert (recorded["status"], answer.status) == (200, DIFFERENT[recorded["name"]])
        return
    assert answer.status == recorded["status"]
    if recorded["answer"]:
        assert answer.body.decode("latin-1") == recorded["answer"]
    if answer.status == 200:
        assert answer.content_type == recorded["content_type"]
