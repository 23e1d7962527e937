"""Reads a KServe v2 inference response, in JSON and in its binary extension, and checks every field, count and size.

In the binary form a JSON header describes the tensors, whose raw little-endian bytes follow it in the same order. Four
bytes before each element of BYTES hold its length.
Sources: KServe's "Open Inference Protocol" and Triton's extension_binary_data.
"""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")

Array = npt.NDArray[Any]

DTYPES = {
    "BOOL": np.dtype(np.bool_),
    **{f"{kind}INT{bits}": np.dtype(f"{kind.lower()}int{bits}") for kind in ("", "U") for bits in (8, 16, 32, 64)},
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
}
LENGTH = struct.Struct("<I")
JSON_TYPES: Mapping[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}
"""The types that json reads the elements of a tensor as, by the kind of its dtype."""
MAX_DIMENSIONS = 64
"""numpy's limit."""
MAX_SIDE = 2**48
"""The largest side of a shape, so that the product of a hostile shape stays small."""


class NotAResponse(ValueError):
    """The bytes are no KServe v2 inference response."""


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
