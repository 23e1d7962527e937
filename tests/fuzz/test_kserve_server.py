"""KServe v2 at the Neuron server: a damaged request is read or refused in a sentence, and every answer can be read."""

import json

from hypothesis import given
from hypothesis import strategies as st

from containers.encoder.answers import OUTPUTS, Answer
from containers.neuron.application import MAX_SENTENCE, ErrorResponses
from containers.neuron.kserve import BadRequest, InferBody, answer, parse
from inference_recommender import kserve as client
from tests.fuzz import examples
from tests.fuzz.mutations import JUNK, damaged_bytes, damaged_document

FIELDS, TASK, MAX_ROWS = ("title", "brand"), "text-classification", 4
LARGEST_ANSWER = 2000
"""Bytes of an answer of four rows."""
GOOD = {
    "id": "7",
    "inputs": [
        {"name": "TITLE", "shape": [2, 1], "datatype": "BYTES", "data": ["a", "b"]},
        {"name": "BRAND", "shape": [2, 1], "datatype": "BYTES", "data": [["c"], ["d"]]},
    ],
    "outputs": [{"name": "LABEL"}, {"name": "SCORE"}],
}


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def check(content: bytes, json_size: "int | None" = None) -> None:
    try:
        request = parse(InferBody(content, json_size), FIELDS, TASK, MAX_ROWS)
    except BadRequest as error:
        answered = ErrorResponses(lambda line: None).answer(400, str(error)).body
    else:
        assert 0 < len(request.rows) <= MAX_ROWS
        assert all(isinstance(value, (str, bytes)) for row in request.rows for value in row.values())
        assert set(request.outputs) <= {name for name, _ in OUTPUTS[TASK]}
        rows: list[Answer] = [{"LABEL": "buy", "SCORE": 0.5} for _ in request.rows]
        answered, size = answer(request, rows, "intent", TASK)
        if size is not None:
            client.decode(client.Body(content=answered, header_size=size), request.outputs)
            return
    json.loads(answered, parse_constant=refuse_constant)
    assert len(answered) < LARGEST_ANSWER + 6 * MAX_SENTENCE


@examples(200)
@given(
    (damaged_document(GOOD) | JUNK).map(lambda it: json.dumps(it).encode()) | damaged_bytes(json.dumps(GOOD).encode())
)
def test_a_damaged_document_is_read_or_refused(body: bytes) -> None:
    check(body)


@examples(80)
@given(
    st.tuples(*[st.integers(-1, 12) | st.just(10)] * 2),
    st.binary(max_size=24) | st.just(b"\1\0\0\0a\1\0\0\0b" * 2),
    st.integers(-2, 2) | st.just(0),
    st.booleans(),
)
def test_damaged_binary_tensors_are_read_or_refused(
    sizes: tuple[int, int], raw: bytes, cut: int, is_binary: bool
) -> None:
    inputs = [
        {"name": name, "shape": [2, 1], "datatype": "BYTES", "parameters": {"binary_data_size": size}}
        for name, size in zip(("TITLE", "BRAND"), sizes, strict=True)
    ]
    header = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": is_binary}}).encode()
    check(header + raw, len(header) + cut)
