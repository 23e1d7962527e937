"""KServe v2 requests and responses, in JSON and in its binary extension, and how a request fails. Pure: arrays in,
bytes out, and back.

In the binary form a JSON header describes the tensors, whose raw little-endian bytes follow it in the same order; the
header's size travels beside the body. Four bytes before each element of BYTES hold its length.
Sources: KServe's "Open Inference Protocol" and Triton's extension_binary_data.
"""

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads import ProjectError

Array = npt.NDArray[Any]

DTYPES = {
    "BOOL": np.dtype(np.bool_),
    **{f"{kind}INT{bits}": np.dtype(f"{kind.lower()}int{bits}") for kind in ("", "U") for bits in (8, 16, 32, 64)},
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
}
DATATYPES = {dtype: name for name, dtype in DTYPES.items()}
LENGTH = struct.Struct("<I")
RETRYABLE_STATUSES = frozenset({429, 500, 502, 503, 504})
"""HTTP statuses of a server that throttles, restarts or failed on its side; another attempt may succeed."""


class CannotEncode(ProjectError):
    """An input that has no KServe v2 datatype, or none in JSON."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"Input {name}: {what}.")


class InferenceFailed(ProjectError):
    """Base of every failed request."""

    exit_code = 3
    may_retry = False
    """Whether it is safe and useful to send the request again."""


class Refused(InferenceFailed):
    """The server answered with an error."""

    def __init__(self, where: str, status: int, message: str) -> None:
        self.status = status
        self.may_retry = status in RETRYABLE_STATUSES
        super().__init__(f"{where} answered {status}: {message[:500]}")


class Unreachable(InferenceFailed):
    """There was no connection, or it broke before an answer. Inference changes nothing: the request may be repeated."""

    may_retry = True

    def __init__(self, where: str, why: object) -> None:
        super().__init__(f"{where} cannot be reached: {why}")


class TimedOut(InferenceFailed):
    """The server may still be at work on the request; a repetition would add to its load."""

    def __init__(self, where: str, timeout_s: float) -> None:
        super().__init__(f"{where} gave no answer within {timeout_s:g} s.")


class NotAnAnswer(InferenceFailed):
    """The server's answer is not a KServe v2 response."""

    def __init__(self, why: str) -> None:
        super().__init__(f"The answer is no KServe v2 response: {why}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """A request or a response. `header_size` is the bytes of a binary body's JSON header; None means plain JSON."""

    content: bytes
    header_size: int | None = None


def encode(inputs: Mapping[str, object], outputs: Sequence[str] = (), *, binary: bool = True) -> Body:
    """Returns a request for `outputs`, or for all that the model has. An input is anything from which numpy makes an
    array; text is sent as BYTES in UTF-8. Raises `CannotEncode`.
    """
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    if not binary:
        return Body(content=_json(_header([_json_tensor(name, array) for name, array in arrays.items()], outputs)))
    raw = {name: _raw(name, array) for name, array in arrays.items()}
    tensors = [
        {**_described(name, arrays[name]), "parameters": {"binary_data_size": len(data)}} for name, data in raw.items()
    ]
    header = _json({**_header(tensors, outputs), "parameters": {"binary_data_output": True}})
    return Body(content=b"".join((header, *raw.values())), header_size=len(header))


def decode(body: Body) -> dict[str, Array]:
    """Returns the outputs by name; the elements of a BYTES tensor are `bytes` objects. Raises `NotAnAnswer`."""
    size = len(body.content) if body.header_size is None else body.header_size
    try:
        header = json.loads(body.content[:size])
        return _outputs(header["outputs"], memoryview(body.content)[size:])
    except (KeyError, TypeError, ValueError, struct.error) as error:
        raise NotAnAnswer(f"{type(error).__name__}: {error}, in {bytes(body.content[:100])!r}") from error


def _outputs(tensors: Iterable[Mapping[str, Any]], rest: memoryview) -> dict[str, Array]:
    arrays = {}
    for tensor in tensors:
        size = tensor.get("parameters", {}).get("binary_data_size")
        if size is None:
            flat = _from_json(tensor["datatype"], tensor["data"])
        else:
            flat, rest = _from_raw(tensor["datatype"], rest[:size]), rest[size:]
        arrays[tensor["name"]] = flat.reshape(tensor["shape"])
    return arrays


def _header(tensors: list[dict[str, Any]], outputs: Sequence[str]) -> dict[str, Any]:
    return {"inputs": tensors, **({"outputs": [{"name": name} for name in outputs]} if outputs else {})}


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


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
    return element.encode() if isinstance(element, str) else bytes(element)


def _raw(name: str, array: Array) -> bytes:
    if _datatype(name, array) != "BYTES":
        return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    elements = [_bytes(name, element) for element in array.ravel()]
    return b"".join(part for element in elements for part in (LENGTH.pack(len(element)), element))


def _from_json(datatype: str, data: Sequence[Any]) -> Array:
    if datatype == "BYTES":
        return _objects([text.encode() for text in data])
    return np.array(data, DTYPES[datatype]).ravel()


def _from_raw(datatype: str, raw: memoryview) -> Array:
    if datatype != "BYTES":
        return np.frombuffer(raw, DTYPES[datatype].newbyteorder("<"))
    elements, at = [], 0
    while at < len(raw):
        (length,) = LENGTH.unpack_from(raw, at)
        at += LENGTH.size
        elements.append(bytes(raw[at : at + length]))
        at += length
    return _objects(elements)


def _objects(elements: Sequence[bytes]) -> Array:
    array = np.empty(len(elements), object)
    array[:] = elements
    return array
