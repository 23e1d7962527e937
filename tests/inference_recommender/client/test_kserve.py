"""KServe v2 bodies: what goes out, by hand and by Triton's own client; what comes back; and what cannot be sent."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.http._utils import _get_inference_request

from inference_recommender.client.kserve import DTYPES, Array, Body, CannotEncode, NotAnAnswer, decode, encode

SHAPES = arrays.array_shapes(max_dims=3, max_side=4)
NUMBERS = st.sampled_from(sorted(DTYPES)).flatmap(lambda name: arrays.arrays(DTYPES[name], SHAPES))
TEXTS = SHAPES.flatmap(
    lambda shape: st.lists(st.binary(max_size=9), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))).map(
        lambda found: np.array([*found, None], object)[:-1].reshape(shape)
    )
)


def _echoed(request: Body) -> Body:
    """The request as the response of a model that answers with its inputs."""
    size = len(request.content) if request.header_size is None else request.header_size
    header = json.loads(request.content[:size])
    content = json.dumps({"model_name": "m", "outputs": header["inputs"]}).encode()
    rest = request.content[size:]
    return Body(content=content + rest, header_size=None if request.header_size is None else len(content))


def _same(left: Array, right: Array) -> bool:
    return left.shape == right.shape and left.dtype == right.dtype and left.tobytes() == right.tobytes()


@given(first=NUMBERS, second=TEXTS, third=NUMBERS)
def test_what_is_sent_in_binary_comes_back_bit_by_bit(first: Array, second: Array, third: Array) -> None:
    found = decode(_echoed(encode({"A": first, "B": second, "C": third})))
    assert list(found) == ["A", "B", "C"]
    assert _same(found["A"], first)
    assert _same(found["C"], third)
    assert found["B"].tolist() == second.tolist()


@given(values=arrays.arrays(np.float32, SHAPES, elements=st.floats(-1e6, 1e6, width=32)), texts=SHAPES)
def test_what_is_sent_in_json_comes_back(values: Array, texts: tuple[int, ...]) -> None:
    words = np.full(texts, "süß", object)
    found = decode(_echoed(encode({"A": values, "B": words}, binary=False)))
    assert _same(found["A"], values)
    assert found["B"].tolist() == np.full(texts, "süß".encode(), object).tolist()


def test_a_json_request_by_hand() -> None:
    body = encode({"QUERY": [["schuhe", "für"]], "K": np.array([3], np.int32)}, ["LABEL"], binary=False)
    assert body.header_size is None
    assert json.loads(body.content) == {
        "inputs": [
            {"name": "QUERY", "shape": [1, 2], "datatype": "BYTES", "data": ["schuhe", "für"]},
            {"name": "K", "shape": [1], "datatype": "INT32", "data": [3]},
        ],
        "outputs": [{"name": "LABEL"}],
    }


def test_a_binary_request_is_the_one_that_tritons_own_client_sends() -> None:
    texts, numbers = np.array([[b"a", b"bcd"]], object), np.array([[1.5, 2.5]], np.float32)
    inputs = [InferInput("T", [1, 2], "BYTES"), InferInput("N", [1, 2], "FP32")]
    for tensor, value in zip(inputs, (texts, numbers), strict=True):
        tensor.set_data_from_numpy(value, binary_data=True)
    outputs = [InferRequestedOutput("O", binary_data=True)]
    theirs, size = _get_inference_request(inputs, "", outputs, 0, False, False, 0, None, None)
    ours = encode({"T": texts, "N": numbers}, ["O"])
    assert ours.header_size is not None
    assert ours.content[ours.header_size :] == theirs[size:]
    our_header, their_header = json.loads(ours.content[: ours.header_size]), json.loads(theirs[:size])
    assert our_header["inputs"] == their_header["inputs"]
    # One parameter for all outputs says the same as one for each.
    assert (our_header["outputs"], our_header["parameters"]) == ([{"name": "O"}], {"binary_data_output": True})
    assert their_header["outputs"] == [{"name": "O", "parameters": {"binary_data": True}}]


def test_big_endian_numbers_are_sent_little_endian() -> None:
    body = encode({"A": np.array([1], ">i4")})
    assert body.content[body.header_size :] == b"\x01\0\0\0"


@pytest.mark.parametrize(
    ("value", "binary", "said"),
    [
        (
            np.array([1j]),
            True,
            "Input A: complex128 has no KServe v2 datatype. Known: BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, "
            "UINT32, UINT64, FP16, FP32, FP64 and text.",
        ),
        (np.array([None, "a"]), True, "Input A: got None, which is neither a number nor text."),
        (np.array([1], np.float16), False, "Input A: FP16 has no form in JSON. Send it in binary."),
        (
            np.array([np.nan]),
            False,
            "Input A: has values that are not finite, which JSON cannot hold. Send it in binary.",
        ),
        (
            [b"\xff"],
            False,
            "Input A: is not UTF-8, which JSON needs ('utf-8' codec can't decode byte 0xff in position 0: invalid "
            "start byte). Send it in binary.",
        ),
    ],
)
def test_what_has_no_form_is_refused_with_the_inputs_name(value: Any, binary: bool, said: str) -> None:
    with pytest.raises(CannotEncode) as refused:
        encode({"A": value}, binary=binary)
    assert str(refused.value) == said


@pytest.mark.parametrize("content", [b"", b"<html>", b"{}", b'{"outputs": [{"name": "A", "shape": [2]}]}', b"[]"])
def test_what_is_no_response_is_said_to_be_none(content: bytes) -> None:
    with pytest.raises(NotAnAnswer, match=r"^The answer is no KServe v2 response: "):
        decode(Body(content=content))


def test_a_cut_binary_answer_is_no_response() -> None:
    whole = _echoed(encode({"A": np.arange(4)}))
    with pytest.raises(NotAnAnswer, match="buffer size must be a multiple of element size"):
        decode(Body(content=whole.content[:-1], header_size=whole.header_size))
