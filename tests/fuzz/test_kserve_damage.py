"""KServe v2: Triton's own client reads what the client encodes, and damage is read or refused in a sentence."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tritonclient.http import InferResult

from containers.encoder.answers import OUTPUTS, Answer
from containers.neuron.application import MAX_SENTENCE, ErrorResponses
from containers.neuron.kserve import BadRequest, InferBody, answer, parse
from inference_recommender import kserve as client
from inference_recommender.kserve import DTYPES, Array, Body, NotAResponse, decode, encode
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


SHAPES = arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3)
NUMBERS = st.sampled_from(sorted(DTYPES)).flatmap(lambda name: arrays.arrays(DTYPES[name], SHAPES))


@st.composite
def _texts(draw: st.DrawFn) -> Array:
    shape = draw(SHAPES)
    count = int(np.prod(shape))
    flat = np.empty(count, object)
    flat[:] = draw(st.lists(st.binary(max_size=6), min_size=count, max_size=count))
    return flat.reshape(shape)


TENSORS = st.dictionaries(st.text("ABC", min_size=1, max_size=2), NUMBERS | _texts(), min_size=1, max_size=3)
SEED = {
    "N": np.arange(6, dtype=np.float32).reshape(2, 3),
    "T": np.array([["süß", "b"]], object),
    "B": np.array([True, False]),
    "I": np.array([[-1]], np.int64),
}


def _answer(request: Body) -> tuple[dict[str, Any], bytes]:
    """Returns header and tensors of the response of a model that answers with its inputs."""
    size = len(request.content) if request.header_size is None else request.header_size
    return {"model_name": "m", "outputs": json.loads(request.content[:size])["inputs"]}, request.content[size:]


def _body(header: Any, rest: bytes, binary: bool) -> Body:
    content = json.dumps(header).encode(errors="surrogatepass")
    return Body(content=content + rest, header_size=len(content) if binary else None)


def _same(left: Array, right: Array) -> bool:
    if left.dtype == object:
        return left.shape == right.shape and left.tolist() == right.tolist()
    return left.shape == right.shape and left.dtype == right.dtype and left.tobytes() == right.tobytes()


@examples(30)
@given(tensors=TENSORS)
def test_tritons_client_reads_the_clients_encoding(tensors: dict[str, Array]) -> None:
    header, rest = _answer(encode(tensors))
    body = _body(header, rest, binary=True)
    theirs = InferResult.from_response_body(body.content, header_length=body.header_size)
    ours = decode(body, list(tensors))
    for name, array in tensors.items():
        assert _same(ours[name], array)
        if array.size:  # theirs takes no bytes at all for no array
            assert _same(theirs.as_numpy(name), array)


def _check(body: Body) -> None:
    """Reads a damaged answer: a short error of the one kind, or arrays that are what a header can describe."""
    said, found = "", {}
    try:
        found = decode(body)
    except NotAResponse as failure:
        said = str(failure)
    assert len(said) < 1_000
    for array in found.values():
        assert array.dtype == object or array.dtype in DTYPES.values()
        if array.dtype == object:
            assert all(type(element) is bytes for element in array.ravel())


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
@examples(80)
@given(data=st.data())
def test_a_damaged_answer_is_an_answer_or_none(binary: bool, data: st.DataObject) -> None:
    header, rest = _answer(encode(SEED, binary=binary))
    whole = _body(header, rest, binary)
    size = whole.header_size if data.draw(st.booleans()) else data.draw(st.none() | st.integers(0, 10**15))
    _check(Body(content=data.draw(damaged_bytes(whole.content)), header_size=size))
    _check(_body(data.draw(damaged_document(header)), rest, binary))
