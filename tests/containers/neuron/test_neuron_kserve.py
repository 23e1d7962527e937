"""Requests are read as Triton reads them, and whatever is wrong with one is said in a sentence."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.encoder.answers import Answer
from containers.encoder.row import Refusal
from containers.neuron.kserve import BadRequest, answer, check, parse

FIELDS = ("title", "brand")
TASK = "text-classification"


def tensor(name: str, *data: object, **changes: Any) -> dict[str, Any]:
    return {"name": name, "shape": [len(data), 1], "datatype": "BYTES", "data": list(data), **changes}


def read(document: Any, content_type: str = "application/json", max_rows: int = 4) -> Any:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return parse(body, content_type, FIELDS, TASK, max_rows)


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=4))
def test_the_inputs_become_rows_in_order(rows: list[tuple[str, str]]) -> None:
    titles, brands = zip(*rows, strict=True)
    request = read({"inputs": [tensor("BRAND", *brands), tensor("TITLE", *titles)]})
    assert request.rows == [{"title": title, "brand": brand} for title, brand in rows]


def test_elements_may_be_nested_as_the_shape_is() -> None:
    request = read({"inputs": [tensor("TITLE", "a", "b", data=[["a"], ["b"]]), tensor("BRAND", "c", "d")]})
    assert [row["title"] for row in request.rows] == ["a", "b"]


GOOD = [tensor("TITLE", "a"), tensor("BRAND", "b")]


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
            'input TITLE must have "shape": [rows, 1], "datatype": "BYTES" and a list "data".',
        ),
        (
            {"inputs": [tensor("TITLE", 1.0, datatype="FP32"), tensor("BRAND", "b")]},
            'input TITLE must have "shape": [rows, 1], "datatype": "BYTES" and a list "data".',
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


def test_binary_tensors_are_refused() -> None:
    with pytest.raises(BadRequest) as caught:
        read({"inputs": GOOD}, "application/vnd.sagemaker-triton.binary+json;json-header-size=10")
    assert str(caught.value) == "binary tensors are not taken here; send JSON."


def test_the_answer_has_the_shape_of_tritons() -> None:
    request = read({"id": "7", "inputs": [tensor("TITLE", "a", "b"), tensor("BRAND", "c", "d")]})
    rows: list[Answer] = [{"LABEL": "buy", "SCORE": 0.75}, {"LABEL": "ask", "SCORE": 0.5}]
    assert json.loads(answer(request, rows, "intent", TASK)) == {
        "id": "7",
        "model_name": "intent",
        "model_version": "1",
        "outputs": [
            {"name": "LABEL", "datatype": "BYTES", "shape": [2, 1], "data": ["buy", "ask"]},
            {"name": "SCORE", "datatype": "FP32", "shape": [2, 1], "data": [0.75, 0.5]},
        ],
    }


def test_only_the_outputs_that_are_asked_for_are_given() -> None:
    request = read({"inputs": GOOD, "outputs": [{"name": "SCORE"}]})
    document = json.loads(answer(request, [{"LABEL": "buy", "SCORE": 0.75}], "intent", TASK))
    assert [output["name"] for output in document["outputs"]] == ["SCORE"]
    assert "id" not in document


def test_a_request_with_some_bad_rows_is_refused_and_names_them() -> None:
    with pytest.raises(BadRequest) as caught:
        check(["a row", Refusal("has no text in title")])
    assert str(caught.value) == "Row 1 has no text in title. No row of this request was answered."
