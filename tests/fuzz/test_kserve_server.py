"""KServe v2 at the Neuron server: a request is read whole or refused in a sentence, and every answer can be read."""

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from containers.encoder.answers import OUTPUTS, Answer
from containers.neuron.application import MAX_SENTENCE, ErrorResponses
from containers.neuron.kserve import BadRequest, InferBody, answer, parse
from inference_recommender import kserve as client
from tests.fuzz import examples

FIELDS, TASK, MAX_ROWS = ("title", "brand"), "text-classification", 4
LARGEST_ANSWER = 2000
"""Bytes. No request makes an answer of four rows longer, and no error."""

SCALAR = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["BYTES", "FP32", "TITLE", "LABEL", "\ud800", "\n", 10**400, "x" * 5000])
)
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5)
)
GOOD = {
    "id": "7",
    "inputs": [
        {"name": "TITLE", "shape": [2, 1], "datatype": "BYTES", "data": ["a", "b"]},
        {"name": "BRAND", "shape": [2, 1], "datatype": "BYTES", "data": [["c"], ["d"]]},
    ],
    "outputs": [{"name": "LABEL"}, {"name": "SCORE"}],
}


def places(document: Any) -> list[tuple[Any, Any]]:
    """Returns every container within the document with each of its keys."""
    own: list[tuple[Any, Any]] = []
    if isinstance(document, dict):
        own = [(document, key) for key in document]
    elif isinstance(document, list):
        own = [(document, index) for index in range(len(document))]
    return own + [place for container, key in own for place in places(container[key])]


@st.composite
def changed_documents(draw: st.DrawFn) -> Any:
    document = copy.deepcopy(GOOD)
    for _ in range(draw(st.integers(0, 3))):
        container, key = draw(st.sampled_from(places(document)))
        match draw(st.sampled_from(["replace", "remove", "repeat"])):
            case "replace":
                container[key] = draw(JSON)
            case "remove":
                del container[key]
            case _ if isinstance(container, list):
                container.extend([container[key]] * draw(st.sampled_from([1, 3, 1000])))
            case _:
                container[draw(st.text(max_size=9))] = container[key]
        if not places(document):
            break
    return document


@st.composite
def changed_text(draw: st.DrawFn) -> bytes:
    text = json.dumps(draw(changed_documents())).encode()
    at = draw(st.integers(0, len(text)))
    end = draw(st.integers(at, min(len(text), at + 20)))
    return (
        text[:at]
        + draw(st.binary(max_size=10) | st.sampled_from([b"[" * 5000, b'{"a":' * 5000, b"1" * 5000]))
        + text[end:]
    )


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


@examples(80)
@given(changed_documents())
def test_a_changed_request_is_read_or_refused(document: Any) -> None:
    check(json.dumps(document).encode())


@examples(80)
@given(changed_text())
def test_damaged_text_is_read_or_refused(body: bytes) -> None:
    check(body)


@examples(80)
@given(
    st.tuples(*[st.integers(-1, 12) | st.just(10)] * 2),
    st.binary(max_size=24) | st.just(b"\1\0\0\0a\1\0\0\0b" * 2),
    st.integers(-2, 2) | st.just(0),
    st.booleans(),
)
def test_any_binary_tensors_are_read_or_refused(sizes: tuple[int, int], raw: bytes, cut: int, is_binary: bool) -> None:
    inputs = [
        {"name": name, "shape": [2, 1], "datatype": "BYTES", "parameters": {"binary_data_size": size}}
        for name, size in zip(("TITLE", "BRAND"), sizes, strict=True)
    ]
    header = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": is_binary}}).encode()
    check(header + raw, len(header) + cut)


@examples(80)
@given(JSON | st.binary(max_size=500))
def test_any_json_and_any_bytes_are_read_or_refused(body: Any) -> None:
    check(body if isinstance(body, bytes) else json.dumps(body).encode())
