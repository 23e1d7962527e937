"""KServe v2: requests are read like Triton's, and errors are sentences."""

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.encoder.answers import Answer
from containers.encoder.row import Refusal
from containers.neuron.kserve import BadRequest, InferBody, answer, check, json_size, parse
from inference_recommender import kserve as client
from tests.builders import message_of

FIELDS = ("title", "brand")
TASK = "text-classification"


def tensor(name: str, *data: object, **changes: Any) -> dict[str, Any]:
    return {"name": name, "shape": [len(data), 1], "datatype": "BYTES", "data": list(data), **changes}


def read(document: Any, max_rows: int = 4) -> Any:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return parse(InferBody(content, None), FIELDS, TASK, max_rows)


def read_binary(document: Any, *tensors: bytes) -> Any:
    header = json.dumps(document).encode()
    return parse(InferBody(b"".join((header, *tensors)), len(header)), FIELDS, TASK, 4)


def binary(name: str, size: int, rows: int = 1) -> dict[str, Any]:
    return {"name": name, "shape": [rows, 1], "datatype": "BYTES", "parameters": {"binary_data_size": size}}


GOOD = [tensor("TITLE", "a"), tensor("BRAND", "b")]
BRAND = tensor("BRAND", "b")
MALFORMED = (
    'Input TITLE must have "shape": [rows, 1], "datatype": "BYTES", and a list "data" or "parameters": '
    '{"binary_data_size": bytes}.'
)
NO_LIST = 'The body must be an object with a list "inputs".'
OUTPUTS_ONCE = '"outputs" may name each of LABEL, SCORE once.'
BAD_ID = '"id" must be a string of at most 256 characters, or a whole number.'
NONE_ANSWERED = "No row of this request was answered."


def with_title(*data: object, **changes: Any) -> dict[str, Any]:
    return {"inputs": [tensor("TITLE", *data, **changes), BRAND]}


REFUSED: list[tuple[Any, str]] = [
    (b"{", "The body is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)."),
    ([], NO_LIST),
    ({"inputs": {}}, NO_LIST),
    (b'{"inputs": [], "id": NaN}', "The request has the inputs none. Send TITLE, BRAND."),
    ({"inputs": GOOD[:1]}, "The request has the inputs TITLE. Send TITLE, BRAND."),
    ({"inputs": [*GOOD, tensor("MORE", "a")]}, "The request has the inputs TITLE, BRAND, MORE. Send TITLE, BRAND."),
    ({"inputs": [tensor("X" * 99)]}, f"The request has the inputs {'X' * 64}…. Send TITLE, BRAND."),
    ({"inputs": [*GOOD, tensor("TITLE", "a")]}, "An input is given twice."),
    ({"inputs": ["TITLE"]}, 'Each input must be an object with a "name".'),
    (with_title("a", "b"), "All inputs must have the same number of rows."),
    ({"inputs": [tensor("TITLE"), tensor("BRAND")]}, "The request has 0 rows. Allowed: 1 to 4."),
    ({"inputs": [tensor(name, *"abcde") for name in ("TITLE", "BRAND")]}, "The request has 5 rows. Allowed: 1 to 4."),
    (with_title("a", shape=[2, 1]), "Input TITLE has 1 elements, but its shape has 2."),
    (with_title("a", shape=[True, True]), MALFORMED),
    (with_title(1.0, datatype="FP32"), MALFORMED),
    (with_title("a\ud83d"), "Row 0 has half of a character in title. Send UTF-8."),
    (with_title({}), "Row 0 has a value of type dict in title. Send text."),
    (
        {"inputs": [tensor("TITLE", "a", 1), tensor("BRAND", "b", "c")]},
        f"Row 1 has a value of type int in title. Send text. {NONE_ANSWERED}",
    ),
    ({"inputs": GOOD, "outputs": [{"name": "LOGITS"}]}, OUTPUTS_ONCE),
    ({"inputs": GOOD, "outputs": [{"name": []}]}, OUTPUTS_ONCE),
    ({"inputs": GOOD, "outputs": [{"name": "SCORE"}] * 2}, OUTPUTS_ONCE),
    ({"inputs": GOOD, "id": float("nan")}, BAD_ID),
    ({"inputs": GOOD, "id": "x" * 257}, BAD_ID),
    ({"inputs": GOOD, "parameters": {"binary_data_output": 1}}, '"binary_data_output" must be true or false.'),
]


@pytest.mark.parametrize(("document", "message"), REFUSED)
def test_an_invalid_request_is_refused(document: Any, message: str) -> None:
    assert message_of(BadRequest, read, document) == message


A, B = b"\1\0\0\0a", b"\1\0\0\0b"
CUT = "Element 0 of input BRAND is cut short."


@pytest.mark.parametrize(
    ("sizes", "raw", "message"),
    [
        ((5, 6), A + B, "Input BRAND has 6 bytes, but 5 are left."),
        ((5, -1), A + B, "Input BRAND has -1 bytes, but 5 are left."),
        ((5, 5), A + b"\2\0\0\0b", CUT),
        ((5, 5), A + b"\xff\xff\xff\xffb", CUT),
        ((5, 3), A + bytes(3), CUT),
        ((5, 0), A, "Input BRAND has 0 elements, but its shape has 1."),
        ((5, 5), A + B + b"c", "1 bytes follow the last input."),
        ((5, 40), A + bytes(40), "All inputs must have the same number of rows."),
    ],
)
def test_an_invalid_binary_tensor_is_refused(sizes: tuple[int, int], raw: bytes, message: str) -> None:
    inputs = [binary("TITLE", sizes[0]), binary("BRAND", sizes[1])]
    assert message_of(BadRequest, read_binary, {"inputs": inputs}, raw) == message


texts = st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=4)


@given(texts, st.booleans(), st.sets(st.sampled_from(["LABEL", "SCORE"])))
def test_the_client_and_the_server_exchange_both_forms(
    rows: list[tuple[str, str]], is_binary: bool, outputs: set[str]
) -> None:
    titles, brands = (np.array(column, object).reshape(-1, 1) for column in zip(*rows, strict=True))
    sent = client.encode({"BRAND": brands, "TITLE": titles}, sorted(outputs), binary=is_binary)
    request = parse(InferBody(sent.content, sent.header_size), FIELDS, TASK, 4)
    assert [[_text(row[field]) for field in FIELDS] for row in request.rows] == [list(row) for row in rows]
    answers: list[Answer] = [{"LABEL": f"{title}é", "SCORE": 0.5} for title, _ in rows]
    answered = answer(request, answers, "intent", TASK)
    assert (answered.json_size is not None) == is_binary
    received = client.decode(client.Body(content=answered.content, header_size=answered.json_size))
    assert set(received) == (outputs or {"LABEL", "SCORE"})
    if "LABEL" in received:
        assert received["LABEL"].tolist() == [[str(row["LABEL"]).encode()] for row in answers]
    if "SCORE" in received:
        assert (received["SCORE"].tolist(), received["SCORE"].dtype) == ([[0.5]] * len(rows), np.dtype("<f4"))


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def test_each_output_may_have_its_own_form() -> None:
    wanted = [{"name": "SCORE", "parameters": {"binary_data": False}}, {"name": "LABEL"}]
    request = read({"inputs": GOOD, "outputs": wanted, "parameters": {"binary_data_output": True}})
    assert (request.outputs, request.binary) == (("SCORE", "LABEL"), {"LABEL"})


SAGEMAKER = "application/vnd.sagemaker-triton.binary+json;json-header-size="


def test_a_header_has_the_size_of_the_json() -> None:
    assert json_size({}) is None
    assert json_size({b"inference-header-content-length": b"12"}) == 12
    assert json_size({b"content-type": SAGEMAKER.encode() + b"7"}) == 7
    with pytest.raises(BadRequest, match=r"^The JSON should have 3 bytes, but the body has 2\.$"):
        parse(InferBody(b"{}", 3), FIELDS, TASK, 4)
    for wrong in ("-1", "", "1e3", "9" * 10):
        send = f"Send Inference-Header-Content-Length: N or {SAGEMAKER}N."
        with pytest.raises(BadRequest, match=re.escape(f"The size of the JSON is '{wrong}'. {send}")):
            json_size({b"inference-header-content-length": wrong.encode()})


def test_the_answer_looks_like_tritons() -> None:
    request = read({"id": "7", "inputs": [tensor("TITLE", "a", "b", data=[["a"], ["b"]]), tensor("BRAND", "c", "d")]})
    assert [row["title"] for row in request.rows] == ["a", "b"]
    rows: list[Answer] = [{"LABEL": "buy", "SCORE": 0.75}, {"LABEL": "ask", "SCORE": 0.5}]
    body = answer(request, rows, "intent", TASK)
    assert body.json_size is None
    assert json.loads(body.content) == {
        "id": "7",
        "model_name": "intent",
        "model_version": "1",
        "outputs": [
            {"name": "LABEL", "datatype": "BYTES", "shape": [2, 1], "data": ["buy", "ask"]},
            {"name": "SCORE", "datatype": "FP32", "shape": [2, 1], "data": [0.75, 0.5]},
        ],
    }


@pytest.mark.parametrize("in_binary", [False, True])
def test_the_client_reads_vectors(in_binary: bool) -> None:
    kind, rows = "feature-extraction", np.array([["a"], ["b"]], object)
    sent = client.encode({"TEXT": rows}, ["EMBEDDING"], binary=in_binary)
    request = parse(InferBody(sent.content, sent.header_size), ("text",), kind, 4)
    vectors = [[0.25, -1.5, 3.0], [1.0, 0.0, -0.5]]
    body = answer(request, [{"EMBEDDING": vector} for vector in vectors], "mine", kind)
    received = client.decode(client.Body(content=body.content, header_size=body.json_size))
    assert (received["EMBEDDING"].tolist(), received["EMBEDDING"].dtype) == (vectors, np.dtype("<f4"))
    with pytest.raises(ValueError, match=r"[Oo]ut of range float|not finite"):
        answer(request, [{"EMBEDDING": [0.25, float("nan"), 3.0]}] * 2, "mine", kind)


def test_a_request_with_a_bad_row_is_refused_and_names_it() -> None:
    message = message_of(BadRequest, check, ["a row", Refusal("has no text in title")])
    assert message == f"Row 1 has no text in title. {NONE_ANSWERED}"
