"""Request bodies and their archive."""

import io
import json
import tarfile

from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.payloads import answers, payload_archive, request_body


@given(st.text(min_size=1))
def test_a_body_is_kserve_v2_with_the_text_as_it_is(text: str) -> None:
    (tensor,) = json.loads(request_body(text))["inputs"]
    assert tensor == {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [text]}


def test_the_archive_has_a_file_per_payload_and_is_reproducible() -> None:
    texts = ["runing sheos", "café", "a"]
    archive = payload_archive(texts)
    assert archive == payload_archive(texts)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as stream:
        bodies = [file.read() for member in stream if (file := stream.extractfile(member))]
    assert bodies == [request_body(text) for text in texts]


def test_answers_are_the_first_outputs_data() -> None:
    assert answers(b'{"outputs":[{"name":"CORRECTED","data":["running shoes"]}]}') == ["running shoes"]
