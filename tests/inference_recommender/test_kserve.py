"""KServe v2 bodies: requests as Triton's own client makes them, responses, and values without an encoding."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.http._utils import _get_inference_request

from inference_recommender.kserve import DTYPES, Array, Body, CannotEncode, NotAResponse, decode, encode
from tests.builders import known, message_of

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
def test_binary_tensors_survive_a_round_trip(first: Array, second: Array, third: Array) -> None:
    found = decode(_echoed(encode({"A": first, "B": second, "C": third})))
    assert list(found) == ["A", "B", "C"]
    assert _same(found["A"], first)
    assert _same(found["C"], third)
    assert found["B"].tolist() == second.tolist()


def test_json_tensors_survive_a_round_trip() -> None:
    values, words = np.array([[0.1], [-1e6]], np.float32), np.array(["süß", "a\0"], object)
    found = decode(_echoed(encode({"A": values, "B": words}, binary=False)))
    assert _same(found["A"], values)
    assert found["B"].tolist() == ["süß".encode(), b"a\0"]


def test_a_json_request_has_the_documented_form() -> None:
    body = encode({"QUERY": [["schuhe", "für"]], "K": np.array([3], np.int32)}, ["LABEL"], binary=False)
    assert body.header_size is None
    assert json.loads(body.content) == {
        "inputs": [
            {"name": "QUERY", "shape": [1, 2], "datatype": "BYTES", "data": ["schuhe", "für"]},
            {"name": "K", "shape": [1], "datatype": "INT32", "data": [3]},
        ],
        "outputs": [{"name": "LABEL"}],
    }


def test_a_binary_request_equals_that_of_tritons_client() -> None:
    texts, numbers = np.array([[b"a", b"bcd"]], object), np.array([[1.5, 2.5]], np.float32)
    inputs = [InferInput("T", [1, 2], "BYTES"), InferInput("N", [1, 2], "FP32")]
    for tensor, value in zip(inputs, (texts, numbers), strict=True):
        tensor.set_data_from_numpy(value, binary_data=True)
    outputs = [InferRequestedOutput("O", binary_data=True)]
    theirs, size = _get_inference_request(inputs, "", outputs, 0, False, False, 0, None, None)
    ours = encode({"T": texts, "N": numbers}, ["O"])
    assert ours.content[known(ours.header_size) :] == theirs[size:]
    our_header, their_header = json.loads(ours.content[: known(ours.header_size)]), json.loads(theirs[:size])
    assert our_header["inputs"] == their_header["inputs"]
    # One parameter for all outputs says the same as one for each.
    assert (our_header["outputs"], our_header["parameters"]) == ([{"name": "O"}], {"binary_data_output": True})
    assert their_header["outputs"] == [{"name": "O", "parameters": {"binary_data": True}}]


def test_big_endian_numbers_are_sent_little_endian() -> None:
    body = encode({"A": np.array([1], ">i4")})
    assert body.content[body.header_size :] == b"\x01\0\0\0"


UNFIT = {
    "complex128 has no KServe v2 datatype. Known: BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, "
    "FP16, FP32, FP64 and text.": (np.array([1j]), True),
    "is no tensor: setting an array element with a sequence.": ([[1], [2, 3]], True),
    "is no text: 'utf-8' codec can't encode character '\\ud800'": (["\ud800"], True),
    "got None, which is neither a number nor text.": (np.array([None, "a"]), True),
    "FP16 has no form in JSON. Send it in binary.": (np.array([1], np.float16), False),
    "has values that are not finite, which JSON cannot hold. Send it in binary.": (np.array([np.nan]), False),
    "is not UTF-8, which JSON needs ('utf-8' codec can't decode byte 0xff": ([b"\xff"], False),
}


@pytest.mark.parametrize("problem", UNFIT)
def test_an_input_without_an_encoding_is_rejected_by_name(problem: str) -> None:
    value, binary = UNFIT[problem]
    assert message_of(CannotEncode, encode, {"A": value}, binary=binary).startswith(f"Input A: {problem}")


def _tensor(**changes: Any) -> dict[str, Any]:
    return {"name": "A", "shape": [2], "datatype": "INT32", "data": [1, 2]} | changes


def _sized(size: Any, **changes: Any) -> dict[str, Any]:
    return _tensor(parameters={"binary_data_size": size}, **changes)


WRONG: dict[str, tuple[dict[str, Any], bytes]] = {
    "output 'A' has 2 elements for the shape [3]": (_tensor(shape=[3]), b""),
    "the shape is [-1]": (_tensor(shape=[-1]), b""),
    "the shape is [True, 2]": (_tensor(shape=[True, 2]), b""),
    "the shape is [1, 1, 1": (_tensor(shape=[1] * 65), b""),
    "the shape is [0, 1000": (_tensor(shape=[0, 10**40]), b""),
    "name is 7, not of type str": (_tensor(name=7), b""),
    "datatype 'BF16' is not known": (_tensor(datatype="BF16"), b""),
    "INT32 data has str": (_tensor(data=["1", 2]), b""),
    "INT32 data has float": (_tensor(data=[1.5, 2]), b""),
    "INT32 data has NoneType, bool": (_tensor(data=[None, True]), b""),
    "Python integer 2147483648 out of bounds for int32": (_tensor(data=[2**31, 2]), b""),
    "INT32 data has list": (_tensor(data=[[1], [2, 3]]), b""),
    "data is '12', not of type list": (_tensor(data="12"), b""),
    "a value does not fit FP32": (_tensor(data=[1e300, 1.0], datatype="FP32"), b""),
    "BYTES data has int": (_tensor(data=["a", 1], datatype="BYTES"), b""),
    "surrogates not allowed": (_tensor(data=["\ud800", "a"], datatype="BYTES"), b""),
    "parameters is [], not of type dict": (_tensor(parameters=[]), b""),
    "binary_data_size is True, not of type int": (_sized(True), b""),
    "output 'A' has -8 bytes, of which 8 are there": (_sized(-8), b"12345678"),
    "output 'A' has 9 bytes, of which 8 are there": (_sized(9), b"12345678"),
    "buffer size must be a multiple of element size": (_sized(7), b"1234567"),
    "1 bytes follow its last output": (_sized(8), b"123456789"),
    "BOOL data has a byte 2": (_sized(2, datatype="BOOL"), b"\1\2"),
    "output 'A' has 1 elements for the shape [2]": (_sized(9, datatype="BYTES"), b"\5\0\0\0abcd\0"),
    "an element of 5 bytes is cut short": (_sized(8, datatype="BYTES"), b"\5\0\0\0abcd"),
    "requires a buffer of at least 4": (_sized(3, datatype="BYTES"), b"\5\0\0"),
}


@pytest.mark.parametrize("problem", WRONG)
def test_a_wrong_answer_is_rejected(problem: str) -> None:
    tensor, rest = WRONG[problem]
    header = json.dumps({"outputs": [tensor]}).encode()
    assert problem in message_of(NotAResponse, decode, Body(content=header + rest, header_size=len(header)))


def test_a_duplicate_or_missing_output_is_rejected() -> None:
    twice = Body(content=json.dumps({"outputs": [_tensor(), _tensor()]}).encode())
    with pytest.raises(NotAResponse, match="output 'A' is there twice"):
        decode(twice)
    once = Body(content=json.dumps({"outputs": [_tensor()]}).encode())
    assert decode(once, ["A"])["A"].tolist() == [1, 2]
    with pytest.raises(NotAResponse, match=r"^it has A, and not B, C$"):
        decode(once, ["A", "B", "C"])


def test_a_wrong_header_size_is_rejected() -> None:
    with pytest.raises(NotAResponse, match="its JSON header of 9 bytes is cut short"):
        decode(Body(content=b"{}", header_size=9))
    for size in ("", "-1", "1e3", "9" * 5_000, "\u0661"):
        with pytest.raises(NotAResponse, match="the size of its JSON header is "):
            Body.received(b"{}", size)


def test_json_numbers_may_be_nested_and_whole() -> None:
    tensors = [
        _tensor(shape=[1, 2], data=[[1, 2]]),
        _tensor(name="B", datatype="FP32", data=[1, 10**20]),
        _tensor(name="C", datatype="BYTES", shape=[2, 1], data=[["a"], ["b"]]),
        _tensor(name="D", datatype="FP64", shape=[0, 3], data=[]),
        _tensor(name="E", datatype="UINT64", data=[2**64 - 1, 0]),
    ]
    found = decode(Body(content=json.dumps({"outputs": tensors}).encode()))
    assert {name: array.tolist() for name, array in found.items()} == {
        "A": [[1, 2]],
        "B": [1.0, np.float32(1e20)],
        "C": [[b"a"], [b"b"]],
        "D": [],
        "E": [2**64 - 1, 0],
    }


DEEP = b'{"outputs":' + b"[" * 100_000


@pytest.mark.parametrize("content", [b"", b"<html>", b"{}", b'{"outputs": [{"name": "A", "shape": [2]}]}', b"[]", DEEP])
def test_other_documents_are_rejected(content: bytes) -> None:
    with pytest.raises(NotAResponse, match=r", in b'"):
        decode(Body(content=content))
