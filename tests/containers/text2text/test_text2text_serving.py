"""The built repository in a real Triton: both body formats of KServe v2, dynamic batching, refusals, warm-up."""

import json
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton_http

from containers.text2text.generator import Refusal, TextGenerator
from local_aws.process.triton import TritonServer
from model_build.plan import BuildPlan
from tests.model_build.miniatures.tiny_t5 import make_texts
from tests.quick_triton import await_counts, start_triton, statistics

pytestmark = pytest.mark.integration

BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="


def expected(generator: TextGenerator, rows: list[str]) -> list[bytes]:
    [answer] = generator.answer([[row.encode() for row in rows]])
    assert not isinstance(answer, Refusal)
    return answer


def post(server: TritonServer, body: bytes, content_type: str) -> tuple[int, bytes, str]:
    answer = server.invoke(body, {"Content-Type": content_type})
    return answer.status, answer.body, answer.content_type


def post_json(server: TritonServer, *rows: str) -> tuple[int, Any]:
    tensor = {"name": "TEXT", "shape": [len(rows), 1], "datatype": "BYTES", "data": list(rows)}
    status, body, _ = post(server, json.dumps({"inputs": [tensor]}).encode(), "application/json")
    return status, json.loads(body)


def post_binary(server: TritonServer, *rows: bytes) -> tuple[int, list[bytes]]:
    tensor = triton_http.InferInput("TEXT", [len(rows), 1], "BYTES")
    tensor.set_data_from_numpy(np.array(rows, np.object_).reshape(-1, 1))
    wanted = triton_http.InferRequestedOutput("CORRECTED", binary_data=True)
    body, header = triton_http.InferenceServerClient.generate_request_body([tensor], outputs=[wanted])
    status, answer, content_type = post(server, body, f"{BINARY}{header}")
    if status != 200:
        return status, [json.loads(answer)["error"].encode()]
    length = int(content_type.removeprefix(BINARY))
    result = triton_http.InferenceServerClient.parse_response_body(answer, header_length=length)
    return status, result.as_numpy("CORRECTED").ravel().tolist()


def batches(server: TritonServer) -> Counter[int]:
    """How many executions there were of each batch size."""
    entries = statistics(server, "tiny")["batch_stats"]
    return Counter({entry["batch_size"]: entry["compute_infer"]["count"] for entry in entries})


def test_several_rows_in_one_request(triton: TritonServer, generator: TextGenerator) -> None:
    rows = make_texts(8)
    status, answer = post_json(triton, *rows)
    assert status == 200
    assert [row.encode() for row in answer["outputs"][0]["data"]] == expected(generator, rows)
    assert post_binary(triton, *(row.encode() for row in rows)) == (200, expected(generator, rows))


@pytest.fixture(scope="module")
def patient_triton(served: BuildPlan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """One model instance that waits for seven rows before it executes them, and that has warmed up all batch sizes.

    However busy the machine is, seven requests of one row each are one execution.
    """
    folder = tmp_path_factory.mktemp("patient")
    repository = shutil.copytree(served.repository, folder / "repository")
    config = repository / "tiny" / "config.pbtxt"
    text, preferred = re.subn(r"preferred_batch_size: \[.*\]", "preferred_batch_size: [ 7 ]", config.read_text("utf-8"))
    text, delays = re.subn(r"(max_queue_delay_microseconds: )\d+", r"\g<1>60000000", text)
    text, copies = re.subn(r"count: \d+", "count: 1", text)
    assert (preferred, delays, copies) == (1, 1, 1)
    config.write_text(text, "utf-8")
    with start_triton(repository, "tiny") as server:
        await_counts(lambda: batches(server), {1: 1, 4: 1, 8: 1})
        assert "warmup" not in server.log_tail(1000).lower(), "Triton logs a warm-up only when it fails"
        yield server


def test_a_bad_row_is_400_and_does_not_affect_others_in_its_batch(
    patient_triton: TritonServer, generator: TextGenerator
) -> None:
    """Not 500: SageMaker counts a 500 as an error of the model."""
    texts = ["hello", "shoes", "red socks", "lamp"]
    good = {text.encode(): (200, expected(generator, [text])) for text in texts}
    bad = {
        b"": (400, [b"TEXT row 0 is empty or blank."]),
        b"\xff": (400, [b"TEXT row 0 is not UTF-8: byte 0 is 0xff."]),
        b"z" * 40: (400, [b"TEXT row 0 has 42 tokens, at most 24 are allowed."]),
    }
    awaited = good | bad
    assert at_once(patient_triton, list(awaited)) == awaited
    await_counts(lambda: batches(patient_triton)[len(awaited)], 1)


def at_once(server: TritonServer, rows: list[bytes]) -> dict[bytes, tuple[int, list[bytes]]]:
    barrier = threading.Barrier(len(rows))

    def send(row: bytes) -> tuple[int, list[bytes]]:
        barrier.wait()
        return post_binary(server, row)

    with ThreadPoolExecutor(len(rows)) as threads:
        return dict(zip(rows, threads.map(send, rows), strict=True))
