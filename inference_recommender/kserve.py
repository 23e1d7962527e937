"""KServe v2 requests and responses, in JSON and in the binary extension. Arrays in, bytes out, and back. Pure.

In the binary form a JSON header describes the tensors. Their raw little-endian bytes follow in the same order. Four
bytes before each element of a BYTES tensor hold its length.
Sources: KServe's "Open Inference Protocol" and Triton's extension_binary_data.
"""

import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from workloads import ProjectError

T = TypeVar("T")

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
JSON_TYPES: Mapping[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}
"""The types that json reads the elements of a tensor as, by the kind of its dtype."""
MAX_DIMENSIONS = 64
"""numpy's limit."""
MAX_SIDE = 2**48
"""The largest side of a shape, so that the product of a hostile shape stays small."""
HEADER_SIZE = re.compile(r"[0-9]{1,15}")
JSON_TYPE = "application/json"
BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
"""The Content-Type of a binary body on SageMaker, with the size of its JSON header."""
SIZE_HEADER = "Inference-Header-Content-Length"
"""The HTTP header with this size on every other server."""


class NotAResponse(ValueError):
    """The bytes are not a KServe v2 inference response."""


class CannotEncode(ProjectError):
    """An input that has no KServe v2 datatype, or none in JSON."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"Input {name}: {what}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """A request or a response. `header_size` is the size of a binary body's JSON header. None means plain JSON."""

    content: bytes
    header_size: int | None = None

    @classmethod
    def received(cls, content: bytes, header_size: str | None) -> Self:
        """Returns the body of a response with this header size in its HTTP headers. Raises `NotAResponse`."""
        if header_size is not None and not HEADER_SIZE.fullmatch(header_size):
            raise NotAResponse(f"the size of its JSON header is {header_size[:40]!r}")
        return cls(content=content, header_size=None if header_size is None else int(header_size))


def content_type(header_size: int | None) -> str:
    """Returns the Content-Type of requests to SageMaker."""
    return JSON_TYPE if header_size is None else f"{BINARY}{header_size}"


def encode(
    inputs: Mapping[str, object],
    outputs: Sequence[str] = (),
    *,
    binary: bool = True,
    parameters: Mapping[str, str | int | float | bool] | None = None,
) -> Body:
    """Returns a request for `outputs`, or for all outputs of the model. An input is a value that numpy converts to an
    array. Text is sent as BYTES in UTF-8. Raises `CannotEncode`.
    """
    asked: dict[str, Any] = {"parameters": dict(parameters)} if parameters else {}
    arrays = {name: _array(name, value) for name, value in inputs.items()}
    if not binary:
        tensors = [_json_tensor(name, array) for name, array in arrays.items()]
        return Body(content=_json({**_header(tensors, outputs), **asked}))
    raw = {name: _raw(name, array) for name, array in arrays.items()}
    tensors = [
        {**_described(name, arrays[name]), "parameters": {"binary_data_size": len(data)}} for name, data in raw.items()
    ]
    header = _json({**_header(tensors, outputs), "parameters": {**(parameters or {}), "binary_data_output": True}})
    return Body(content=b"".join((header, *raw.values())), header_size=len(header))


def decode(body: Body, outputs: Sequence[str] = ()) -> dict[str, Array]:
    """Returns the response's outputs by name and requires `outputs` among them. Raises `NotAResponse`."""
    try:
        arrays = read_outputs(body.content, body.header_size)
    except NotAResponse as error:
        raise NotAResponse(f"{error}, in {bytes(body.content[:100])!r}") from error
    if missing := [name for name in outputs if name not in arrays]:
        raise NotAResponse(f"it has {', '.join(arrays) or 'no output'}, and not {', '.join(missing)}")
    return arrays


def read_outputs(content: bytes, header_size: int | None = None) -> dict[str, Array]:
    """Returns the outputs by name; the elements of a BYTES tensor are `bytes` objects.

    `header_size` is the bytes of a binary body's JSON header; None means plain JSON. Raises `NotAResponse` if a shape,
    count or size differs, a value is not of its datatype, or bytes are missing or left over.
    """
    try:
        return _outputs(memoryview(content), header_size)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError, struct.error) as error:
        raise NotAResponse(str(error)[:200]) from error


def _outputs(content: memoryview, header_size: int | None) -> dict[str, Array]:
    size = len(content) if header_size is None else header_size
    if size > len(content):
        raise ValueError(f"its JSON header of {size} bytes is cut short")
    header, rest = json.loads(str(content[:size], "utf-8")), content[size:]
    arrays: dict[str, Array] = {}
    for tensor in _field(header, "outputs", list):
        name, datatype, shape = _field(tensor, "name", str), _field(tensor, "datatype", str), _shape(tensor)
        if datatype not in DTYPES and datatype != "BYTES":
            raise ValueError(f"datatype {datatype!r:.40} is not known")
        if name in arrays:
            raise ValueError(f"output {name!r:.40} is there twice")
        parameters = _field(tensor, "parameters", dict) if "parameters" in tensor else {}
        if "binary_data_size" in parameters:
            length = _field(parameters, "binary_data_size", int)
            if not 0 <= length <= len(rest):
                raise ValueError(f"output {name!r:.40} has {length} bytes, of which {len(rest)} are there")
            flat, rest = _from_raw(datatype, rest[:length]), rest[length:]
        else:
            flat = _from_json(datatype, _field(tensor, "data", list))
        if flat.size != math.prod(shape):
            raise ValueError(f"output {name!r:.40} has {flat.size} elements for the shape {shape}")
        arrays[name] = flat.reshape(shape)
    if rest:
        raise ValueError(f"{len(rest)} bytes follow its last output")
    return arrays


def _field(table: object, key: str, kind: type[T]) -> T:
    """Returns the value under `key` if it is of `kind` itself: True is no int here."""
    value = table.get(key) if isinstance(table, dict) else None
    if type(value) is not kind:
        raise ValueError(f"{key} is {value!r:.40}, not of type {kind.__name__}")
    return value


def _shape(tensor: object) -> list[int]:
    shape = _field(tensor, "shape", list)
    if len(shape) > MAX_DIMENSIONS or not all(type(side) is int and 0 <= side < MAX_SIDE for side in shape):
        raise ValueError(f"the shape is {shape!r:.40}")
    return shape


def _from_json(datatype: str, data: list[Any]) -> Array:
    """Returns the elements in a row; `data` may be nested. numpy alone would read "7" as a number, and 3.7 as 3."""
    types = set(map(type, data))
    if list in types:
        data = np.array(data, object).ravel().tolist()
        types = set(map(type, data))
    allowed: set[type] = {str} if datatype == "BYTES" else JSON_TYPES[DTYPES[datatype].kind]
    if not types <= allowed:
        raise ValueError(f"{datatype} data has {', '.join(sorted(each.__name__ for each in types - allowed))}")
    if datatype == "BYTES":
        return _objects([text.encode() for text in data])
    with np.errstate(over="ignore"):
        array = np.array(data, DTYPES[datatype])
    if float in types and (infinite := np.count_nonzero(np.isinf(array))) and infinite != sum(map(math.isinf, data)):
        raise OverflowError(f"a value does not fit {datatype}")
    return array


def _from_raw(datatype: str, raw: memoryview) -> Array:
    if datatype == "BOOL" and (values := np.frombuffer(raw, np.uint8)).size and values.max() > 1:
        raise ValueError(f"BOOL data has a byte {values.max()}")
    if datatype != "BYTES":
        return np.frombuffer(raw, DTYPES[datatype].newbyteorder("<"))
    elements, at = [], 0
    while at < len(raw):
        (length,) = LENGTH.unpack_from(raw, at)
        end = at + LENGTH.size + length
        if end > len(raw):
            raise ValueError(f"an element of {length} bytes is cut short")
        elements.append(bytes(raw[at + LENGTH.size : end]))
        at = end
    return _objects(elements)


def _objects(elements: Sequence[bytes]) -> Array:
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


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
