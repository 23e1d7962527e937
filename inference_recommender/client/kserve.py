"""KServe v2 requests and responses, in JSON and in its binary extension. Pure: arrays in, bytes out, and back.

In the binary form a JSON header describes the tensors, whose raw little-endian bytes follow it in the same order; the
header's size travels beside the body. Four bytes before each element of BYTES hold its length.
Sources: KServe's "Open Inference Protocol" and Triton's extension_binary_data.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from inference_recommender.client.failures import NotAnAnswer
from inference_recommender.kserve import DTYPES, LENGTH, Array, NotAResponse, read_outputs
from workloads import ProjectError

DATATYPES = {dtype: name for name, dtype in DTYPES.items()}
HEADER_SIZE = re.compile(r"[0-9]{1,15}")


class CannotEncode(ProjectError):
    """An input that has no KServe v2 datatype, or none in JSON."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"Input {name}: {what}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """A request or a response. `header_size` is the bytes of a binary body's JSON header; None means plain JSON."""

    content: bytes
    header_size: int | None = None

    @classmethod
    def received(cls, content: bytes, header_size: str | None) -> Self:
        """Returns the body of an answer whose header says `header_size`. Raises `NotAnAnswer`."""
        if header_size is not None and not HEADER_SIZE.fullmatch(header_size):
            raise NotAnAnswer(f"the size of its JSON header is {header_size[:40]!r}")
        return cls(content=content, header_size=None if header_size is None else int(header_size))


def encode(inputs: Mapping[str, object], outputs: Sequence[str] = (), *, binary: bool = True) -> Body:
    """Returns a request for `outputs`, or for all that the model has. An input is anything from which numpy makes an
    array; text is sent as BYTES in UTF-8. Raises `CannotEncode`.
    """
    arrays = {name: _array(name, value) for name, value in inputs.items()}
    if not binary:
        return Body(content=_json(_header([_json_tensor(name, array) for name, array in arrays.items()], outputs)))
    raw = {name: _raw(name, array) for name, array in arrays.items()}
    tensors = [
        {**_described(name, arrays[name]), "parameters": {"binary_data_size": len(data)}} for name, data in raw.items()
    ]
    header = _json({**_header(tensors, outputs), "parameters": {"binary_data_output": True}})
    return Body(content=b"".join((header, *raw.values())), header_size=len(header))


def decode(body: Body, outputs: Sequence[str] = ()) -> dict[str, Array]:
    """Returns the answer's outputs by name; `outputs` have to be there. The elements of a BYTES tensor are `bytes`
    objects. Raises `NotAnAnswer` for all that is not exactly a response: shapes, counts and sizes that differ, values
    that are not of their datatype, bytes that are missing or left over.
    """
    try:
        arrays = read_outputs(body.content, body.header_size)
    except NotAResponse as error:
        raise NotAnAnswer(f"{error}, in {bytes(body.content[:100])!r}") from error
    if missing := [name for name in outputs if name not in arrays]:
        raise NotAnAnswer(f"it has {', '.join(arrays) or 'no output'}, and not {', '.join(missing)}")
    return arrays


def _header(tensors: list[dict[str, Any]], outputs: Sequence[str]) -> dict[str, Any]:
    return {"inputs": tensors, **({"outputs": [{"name": name} for name in outputs]} if outputs else {})}


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _array(name: str, value: object) -> Array:
    """Returns text as an array of objects: numpy's own arrays of text lose zeros at the end of an element."""
    if isinstance(value, np.ndarray):
        return value
    try:
        array = np.asarray(value)
        return np.asarray(value, object) if array.dtype.kind in "SU" else array
    except ValueError as error:
        raise CannotEncode(name, f"is no tensor: {str(error).rstrip('.')}") from error


def _described(name: str, array: Array) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "datatype": _datatype(name, array)}


def _datatype(name: str, array: Array) -> str:
    if array.dtype.kind in "OSU":
        return "BYTES"
    if (datatype := DATATYPES.get(array.dtype.newbyteorder("="))) is None:
        raise CannotEncode(name, f"{array.dtype} has no KServe v2 datatype. Known: {', '.join(DTYPES)} and text")
    return datatype


def _json_tensor(name: str, array: Array) -> dict[str, Any]:
    described = _described(name, array)
    if described["datatype"] == "FP16":
        raise CannotEncode(name, "FP16 has no form in JSON. Send it in binary")
    if described["datatype"] == "BYTES":
        return {**described, "data": [_text(name, element) for element in array.ravel()]}
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise CannotEncode(name, "has values that are not finite, which JSON cannot hold. Send it in binary")
    return {**described, "data": array.ravel().tolist()}


def _text(name: str, element: object) -> str:
    try:
        return _bytes(name, element).decode()
    except UnicodeDecodeError as error:
        raise CannotEncode(name, f"is not UTF-8, which JSON needs ({error}). Send it in binary") from error


def _bytes(name: str, element: object) -> bytes:
    if not isinstance(element, (str, bytes)):
        raise CannotEncode(name, f"got {element!r}, which is neither a number nor text")
    try:
        return element.encode() if isinstance(element, str) else bytes(element)
    except UnicodeEncodeError as error:
        raise CannotEncode(name, f"is no text: {error}") from error


def _raw(name: str, array: Array) -> bytes:
    if _datatype(name, array) != "BYTES":
        return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    elements = [_bytes(name, element) for element in array.ravel()]
    return b"".join(part for element in elements for part in (LENGTH.pack(len(element)), element))
