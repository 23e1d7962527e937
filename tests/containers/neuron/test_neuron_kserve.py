"""Requests are read as Triton reads them, and whatever is wrong with one is said in a sentence."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.encoder.answers import Answer
from containers.encoder.row import Refusal
from containers.neuron.kserve import BadAnswer, BadRequest, Body, answer, check, json_size, parse
from inference_recommender import kserve as client

FIELDS = ("title", "brand")
TASK = "text-classification"


def tensor(name: str, *data: object, **changes: Any) -> dict[str, Any]:
    return {"name": name, "shape": [len(data), 1], "datatype": "BYTES", "data": list(data), **changes}


def read(document: Any, max_rows: int = 4) -> Any:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return parse(Body(content, None), FIELDS, TASK, max_rows)


def read_binary(document: Any, *tensors: bytes) -> Any:
    header = json.dumps(document).encode()
    return parse(Body(b"".join((header, *tensors)), len(header)), FIELDS, TASK, 4)


def binary(name: str, size: int, rows: int = 1) -> dict[str, Any]:
    return {"name": name, "shape": [rows, 1], "datatype": "BYTES", "parameters": {"binary_data_size": size}}


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=4))
def test_the_inputs_become_rows_in_order(rows: list[tuple[str, str]]) -> None:
    titles, brands = zip(*rows, strict=True)
    request = read({"inputs": [tensor("BRAND", *brands), tensor("TITLE", *titles)]})
    assert request.rows == [{"title": title, "brand": brand} for title, brand in rows]


def test_elements_may_be_nested_as_the_shape_is() -> None:
    request = read({"inputs": [tensor("TITLE", "a", "b", data=[["a"], ["b"]]), tensor("BRAND", "c", "d")]})
    assert [row["title"] for row in request.rows] == ["a", "b"]


GOOD = [tensor("TITLE", "a"), tensor("BRAND", "b")]
MUST_HAVE = (
    'input TITLE must have "shape": [rows, 1], "datatype": "BYTES" and a list "data" or "parameters": '
    '{"binary_data_size": bytes}.'
)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"{", "the body is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)."),
        ([], 'the body must be an object with a list "inputs".'),
        ({"inputs": {}}, 'the body must be an object with a list "inputs".'),
        ({"inputs": []}, "got the inputs none; wanted are TITLE, BRAND."),
        ({"inputs": [tensor("TITLE", "a")]}, "got the inputs TITLE; wanted are TITLE, BRAND."),
        ({"inputs": [*GOOD, tensor("MORE", "a")]}, "got the inputs TITLE, BRAND, MORE; wanted are TITLE, BRAND."),
        ({"inputs": [*GOOD, tensor("TITLE", "a")]}, "an input is given twice."),
        (
            {"inputs": [tensor("TITLE", "a", "b"), tensor("BRAND", "b")]},
            "all inputs must have the same number of rows.",
        ),
        ({"inputs": [tensor("TITLE"), tensor("BRAND")]}, "got 0 rows; 1 to 4 are allowed in a request."),
        (
            {"inputs": [tensor("TITLE", *"abcde"), tensor("BRAND", *"abcde")]},
            "got 5 rows; 1 to 4 are allowed in a request.",
        ),
        (
            {"inputs": [tensor("TITLE", "a", shape=[2, 1]), tensor("BRAND", "b")]},
            "input TITLE has 1 elements in data, and its shape says 2.",
        ),
        (
            {"inputs": [tensor("TITLE", "a", shape=[1]), tensor("BRAND", "b")]},
            MUST_HAVE,
        ),
        (
            {"inputs": [tensor("TITLE", 1.0, datatype="FP32"), tensor("BRAND", "b")]},
            MUST_HAVE,
        ),
        ({"inputs": [tensor("TITLE", "a", shape=[True, True]), tensor("BRAND", "b")]}, MUST_HAVE),
        (
            {"inputs": [tensor("TITLE", "a\ud83d"), tensor("BRAND", "b")]},
            "Row 0 has half of a character in title, which is no text in UTF-8.",
        ),
        ({"inputs": ["TITLE"]}, 'every input must be an object with a "name".'),
        ({"inputs": GOOD, "outputs": [{"name": "LOGITS"}]}, "outputs may name LABEL, SCORE."),
        ({"inputs": GOOD, "outputs": {"name": "LOGITS"}}, "outputs may name LABEL, SCORE."),
        ({"inputs": GOOD, "outputs": [[]]}, "outputs may name LABEL, SCORE."),
        ({"inputs": GOOD, "outputs": [{"name": []}]}, "outputs may name LABEL, SCORE."),
        (
            {"inputs": GOOD, "outputs": [{"name": "SCORE"}, {"name": "SCORE"}]},
            "outputs may name each of LABEL, SCORE once.",
        ),
        (
            {"inputs": [tensor("TITLE", {}), tensor("BRAND", "b")]},
            "Row 0 has a value of type dict in title, and text is wanted.",
        ),
        (
            {"inputs": [tensor("TITLE", "a", 1), tensor("BRAND", "b", "c")]},
            "Row 1 has a value of type int in title, and text is wanted. No row of this request was answered.",
        ),
        (
            {"inputs": [tensor("X" * 99)]},
            f"got the inputs {'X' * 64}…; wanted are TITLE, BRAND.",
        ),
        (b'{"inputs": [], "id": NaN}', "got the inputs none; wanted are TITLE, BRAND."),
        ({"inputs": GOOD, "id": float("nan")}, '"id" must be a string of at most 256 characters, or a whole number.'),
        ({"inputs": GOOD, "id": "x" * 257}, '"id" must be a string of at most 256 characters, or a whole number.'),
    ],
)
def test_a_request_that_cannot_be_read_is_refused(document: Any, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read(document)
    assert str(caught.value) == message


texts = st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=4)


@given(texts, st.booleans(), st.sets(st.sampled_from(["LABEL", "SCORE"])))
def test_the_client_is_understood_in_both_forms_and_understands_the_answer(
    rows: list[tuple[str, str]], is_binary: bool, outputs: set[str]
) -> None:
    titles, brands = (np.array(column, object).reshape(-1, 1) for column in zip(*rows, strict=True))
    sent = client.encode({"BRAND": brands, "TITLE": titles}, sorted(outputs), binary=is_binary)
    request = parse(Body(sent.content, sent.header_size), FIELDS, TASK, 4)
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


def test_an_output_may_be_asked_for_in_a_form_of_its_own() -> None:
    wanted = [{"name": "SCORE", "parameters": {"binary_data": False}}, {"name": "LABEL"}]
    request = read({"inputs": GOOD, "outputs": wanted, "parameters": {"binary_data_output": True}})
    assert (request.outputs, request.binary) == (("SCORE", "LABEL"), {"LABEL"})
    with pytest.raises(BadRequest) as caught:
        read({"inputs": GOOD, "parameters": {"binary_data_output": 1}})
    assert str(caught.value) == '"binary_data_output" must be true or false.'


@pytest.mark.parametrize(
    ("sizes", "raw", "message"),
    [
        ((5, 6), b"\1\0\0\0a\1\0\0\0b", "input BRAND has 6 bytes, of which 5 are there."),
        ((5, -1), b"\1\0\0\0a\1\0\0\0b", "input BRAND has -1 bytes, of which 5 are there."),
        ((5, 5), b"\1\0\0\0a\2\0\0\0b", "element 0 of input BRAND is cut short."),
        ((5, 5), b"\1\0\0\0a\xff\xff\xff\xffb", "element 0 of input BRAND is cut short."),
        ((5, 3), b"\1\0\0\0a\0\0\0", "element 0 of input BRAND is cut short."),
        ((5, 0), b"\1\0\0\0a", "input BRAND has 0 elements, and its shape says 1."),
        ((5, 5), b"\1\0\0\0a\1\0\0\0bc", "1 bytes follow the last input."),
        ((5, 40), b"\1\0\0\0a" + bytes(40), "all inputs must have the same number of rows."),
    ],
)
def test_binary_tensors_that_are_not_what_they_say_are_refused(
    sizes: tuple[int, int], raw: bytes, message: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        read_binary({"inputs": [binary("TITLE", sizes[0]), binary("BRAND", sizes[1])]}, raw)
    assert str(caught.value) == message


def test_a_header_says_where_the_json_ends() -> None:
    assert json_size({}) is None
    assert json_size({b"inference-header-content-length": b"12"}) == 12
    of_sagemaker = "application/vnd.sagemaker-triton.binary+json;json-header-size="
    assert json_size({b"content-type": of_sagemaker.encode() + b"7"}) == 7
    for wrong in (b"-1", b"", b"1e3", b"9" * 10):
        with pytest.raises(BadRequest) as caught:
            json_size({b"inference-header-content-length": wrong})
        assert str(caught.value) == (
            f"got '{wrong.decode()}' for the size of the JSON; Inference-Header-Content-Length: N or {of_sagemaker}N "
            "is wanted."
        )
    with pytest.raises(BadRequest) as caught:
        parse(Body(b"{}", 3), FIELDS, TASK, 4)
    assert str(caught.value) == "the JSON should have 3 bytes, and the body has 2."


def test_a_number_that_is_not_finite_is_no_answer_in_binary_either() -> None:
    request = read({"inputs": GOOD, "parameters": {"binary_data_output": True}})
    with pytest.raises(BadAnswer):
        answer(request, [{"LABEL": "buy", "SCORE": float("nan")}], "intent", TASK)


def test_the_answer_has_the_shape_of_tritons() -> None:
    request = read({"id": "7", "inputs": [tensor("TITLE", "a", "b"), tensor("BRAND", "c", "d")]})
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
def test_a_vector_has_its_numbers_side_by_side_and_the_client_reads_them(in_binary: bool) -> None:
    kind, rows = "feature-extraction", np.array([["a"], ["b"]], object)
    sent = client.encode({"TEXT": rows}, ["EMBEDDING"], binary=in_binary)
    request = parse(Body(sent.content, sent.header_size), ("text",), kind, 4)
    vectors = [[0.25, -1.5, 3.0], [1.0, 0.0, -0.5]]
    body = answer(request, [{"EMBEDDING": vector} for vector in vectors], "mine", kind)
    received = client.decode(client.Body(content=body.content, header_size=body.json_size))
    assert (received["EMBEDDING"].tolist(), received["EMBEDDING"].dtype) == (vectors, np.dtype("<f4"))
    with pytest.raises(BadAnswer):
        answer(request, [{"EMBEDDING": [0.25, float("nan"), 3.0]}] * 2, "mine", kind)


def test_only_the_outputs_that_are_asked_for_are_given() -> None:
    request = read({"inputs": GOOD, "outputs": [{"name": "SCORE"}]})
    document = json.loads(answer(request, [{"LABEL": "buy", "SCORE": 0.75}], "intent", TASK).content)
    assert [output["name"] for output in document["outputs"]] == ["SCORE"]
    assert "id" not in document


def test_a_request_with_some_bad_rows_is_refused_and_names_them() -> None:
    with pytest.raises(BadRequest) as caught:
        check(["a row", Refusal("has no text in title")])
    assert str(caught.value) == "Row 1 has no text in title. No row of this request was answered."
