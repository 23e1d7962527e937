"""Reads KServe v2 requests and writes answers in the shapes that Triton has for the same workload. Pure.

A request has one input per field of the model, upper-cased, BYTES of shape [rows, 1]. An answer has the outputs of
`encoder.answers`, each [rows, 1], or [rows, numbers] for vectors.

Both may be JSON or binary. In a binary body raw little-endian tensors follow the JSON, and each BYTES element follows
its length in 4 bytes. Sources: KServe's Open Inference Protocol, Triton's extension_binary_data. A request cannot make
an answer large: each output is returned once, and errors repeat only the start of names.
"""

import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from ..encoder.answers import OUTPUTS, VECTORS, Answer
from ..encoder.row import Refusal

LONGEST_ID = 256
SHOWN = 64  # Characters of a name, and names of a list, that an error repeats
DATA_TYPES = {"TYPE_STRING": "BYTES", "TYPE_FP32": "FP32", "TYPE_INT64": "INT64"}
JSON_SIZE = "Inference-Header-Content-Length"
SAGEMAKER_BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
"""SageMaker forwards no header of a client, so the size is in the Content-Type."""
_JSON = json.JSONEncoder(allow_nan=False)
_SIZE = re.compile(rb"[0-9]{1,9}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LENGTH = struct.Struct("<I")
_FORMATS = {"TYPE_FP32": "f", "TYPE_INT64": "q"}


class BadRequest(Exception):
    """The client's error in one sentence; becomes HTTP 400."""


@dataclass(frozen=True)
class InferRequest:
    rows: Sequence[Mapping[str, object]]
    outputs: tuple[str, ...]  # names of the answer's outputs, in order
    binary: frozenset[str]  # the outputs to return in binary
    id: "str | int | None"


class InferBody(NamedTuple):
    content: bytes
    json_size: "int | None"  # bytes of a binary body's JSON; None if all is JSON


def json_size(headers: Mapping[bytes, bytes]) -> "int | None":
    """Returns the size of a binary body's JSON from the headers; None if all is JSON. Raises `BadRequest`."""
    size = headers.get(JSON_SIZE.lower().encode())
    content_type = headers.get(b"content-type", b"")
    if content_type.startswith(b"application/vnd.sagemaker-triton.binary"):
        size = content_type.removeprefix(SAGEMAKER_BINARY.encode())
    if size is None:
        return None
    if not _SIZE.fullmatch(size):
        shown = _clip(size.decode("latin-1"))
        raise BadRequest(f"The size of the JSON is '{shown}'. Send {JSON_SIZE}: N or {SAGEMAKER_BINARY}N.")
    return int(size)


def parse(body: InferBody, fields: Sequence[str], kind: str, max_rows: int) -> InferRequest:
    """Reads a request to a model of a `Settings.kind`. Raises `BadRequest`."""
    content, size = body
    if size is not None and size > len(content):
        raise BadRequest(f"The JSON should have {size} bytes, but the body has {len(content)}.")
    try:
        document = json.loads(content if size is None else content[:size])
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The body is not JSON: {error}.") from None
    if not isinstance(document, dict) or not isinstance(document.get("inputs"), list):
        raise BadRequest('The body must be an object with a list "inputs".')
    rest = memoryview(b"" if size is None else content)[size:]
    columns: dict[str, list[object]] = {}
    for tensor in document["inputs"]:
        name, column, rest = _column(tensor, rest, max_rows)
        columns[name] = column
    if rest:
        raise BadRequest(f"{len(rest)} bytes follow the last input.")
    _check_names([field.upper() for field in fields], list(columns), len(document["inputs"]))
    counts = {len(column) for column in columns.values()}
    if len(counts) > 1:
        raise BadRequest("All inputs must have the same number of rows.")
    if not 0 < (count := counts.pop()) <= max_rows:
        raise BadRequest(f"The request has {count} rows. Allowed: 1 to {max_rows}.")
    rows = [{field: columns[field.upper()][row] for field in fields} for row in range(count)]
    _check_text(rows)
    outputs, binary = _requested(document.get("outputs"), kind, _flag(document, "binary_data_output", False))
    return InferRequest(rows, outputs, binary, _id(document.get("id")))


def check(encoded: Sequence[object]) -> None:
    """Raises `BadRequest` if a row was refused: like Triton's ensemble, the server answers all rows or none."""
    if refused := [f"Row {index} {row.message}." for index, row in enumerate(encoded) if isinstance(row, Refusal)]:
        raise _bad_rows(refused, len(encoded))


def answer(request: InferRequest, answers: Sequence[Answer], model: str, kind: str) -> InferBody:
    """Returns the body of the answer. Raises ValueError if a number is not finite."""
    types = dict(OUTPUTS[kind])
    outputs: list[dict[str, object]] = []
    tensors: list[bytes] = []
    for name in request.outputs:
        values: list[Any] = [row[name] for row in answers]
        width = 1
        if name in VECTORS:
            values, width = list(chain.from_iterable(values)), len(values[0])
        output = {"name": name, "datatype": DATA_TYPES[types[name]], "shape": [len(answers), width]}
        if name in request.binary:
            tensors.append(_raw(types[name], values))
            outputs.append({**output, "parameters": {"binary_data_size": len(tensors[-1])}})
        else:
            outputs.append({**output, "data": values})
    own = {} if request.id is None else {"id": request.id}
    document = {**own, "model_name": model, "model_version": "1", "outputs": outputs}
    header = _JSON.encode(document).encode()
    return InferBody(b"".join((header, *tensors)), len(header) if tensors else None)


def _column(tensor: Any, rest: memoryview, max_rows: int) -> "tuple[str, list[object], memoryview]":
    """Returns an input's name and elements, and the remaining binary tensors."""
    match tensor:
        case {
            "name": str(name),
            "shape": [int(rows), 1],
            "datatype": "BYTES",
            "parameters": {"binary_data_size": int(size)},
        } if type(rows) is int:  # not true
            if not 0 <= size <= len(rest):
                raise BadRequest(f"Input {_clip(name)} has {size} bytes, but {len(rest)} are left.")
            return name, _elements(name, rest[:size], rows, max_rows), rest[size:]
        case {"name": str(name), "shape": [int(rows), 1], "datatype": "BYTES", "data": list(data)} if type(rows) is int:
            elements = [each for item in data for each in (item if isinstance(item, list) else [item])]
            if len(elements) != rows:
                raise BadRequest(f"Input {_clip(name)} has {len(elements)} elements, but its shape has {rows}.")
            return name, elements, rest
        case {"name": str(name)}:
            raise BadRequest(
                f'Input {_clip(name)} must have "shape": [rows, 1], "datatype": "BYTES", and a list "data" or '
                '"parameters": {"binary_data_size": bytes}.'
            )
        case _:
            raise BadRequest('Each input must be an object with a "name".')


def _elements(name: str, raw: memoryview, rows: int, max_rows: int) -> "list[object]":
    """Returns the elements of a binary tensor of BYTES. Stops after one more than `max_rows`."""
    elements: list[object] = []
    at = 0
    while at < len(raw) and len(elements) <= max_rows:
        start = at + _LENGTH.size
        end = start + _LENGTH.unpack_from(raw, at)[0] if start <= len(raw) else start
        if end > len(raw):
            raise BadRequest(f"Element {len(elements)} of input {_clip(name)} is cut short.")
        elements.append(bytes(raw[start:end]))
        at = end
    if len(elements) <= max_rows and len(elements) != rows:
        raise BadRequest(f"Input {_clip(name)} has {len(elements)} elements, but its shape has {rows}.")
    return elements


def _raw(kind: str, values: "Sequence[Any]") -> bytes:
    if kind == "TYPE_STRING":
        encoded = [value.encode() for value in values]
        return b"".join(part for value in encoded for part in (_LENGTH.pack(len(value)), value))
    if not all(map(math.isfinite, values)):
        raise ValueError("the model's answer has a number that is not finite.")
    return struct.pack(f"<{len(values)}{_FORMATS[kind]}", *values)


def _flag(table: Mapping[str, Any], name: str, default: bool) -> bool:
    parameters = table.get("parameters")
    value = parameters.get(name, default) if isinstance(parameters, dict) else default
    if not isinstance(value, bool):
        raise BadRequest(f'"{name}" must be true or false.')
    return value


def _check_names(expected: Sequence[str], names: Sequence[str], count: int) -> None:
    if count > len(names):
        raise BadRequest("An input is given twice.")
    if sorted(expected) != sorted(names):
        shown = ", ".join(_clip(name) for name in names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
        raise BadRequest(f"The request has the inputs {shown or 'none'}. Send {', '.join(expected)}.")


def _clip(name: str) -> str:
    return name if len(name) <= SHOWN else name[:SHOWN] + "…"


def _check_text(rows: Sequence[Mapping[str, object]]) -> None:
    """Refuses values that are not text before they wait in the queue: there may be a million small objects."""
    for index, row in enumerate(rows):
        for field, value in row.items():
            if not isinstance(value, (str, bytes)):
                reason = f"has a value of type {type(value).__name__} in {field}. Send text."
                raise _bad_rows([f"Row {index} {reason}"], len(rows))
            if isinstance(value, str) and _SURROGATE.search(value):
                raise _bad_rows([f"Row {index} has half of a character in {field}. Send UTF-8."], len(rows))


def _bad_rows(sentences: "list[str]", count: int) -> BadRequest:
    return BadRequest(" ".join([*sentences, "No row of this request was answered."] if count > 1 else sentences))


def _id(value: object) -> "str | int | None":
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, str) and len(value) <= LONGEST_ID:
        return value
    raise BadRequest(f'"id" must be a string of at most {LONGEST_ID} characters, or a whole number.')


def _requested(outputs: Any, kind: str, binary: bool) -> "tuple[tuple[str, ...], frozenset[str]]":
    """Returns the names of the answer's outputs, those in the request or all, and those to return in binary."""
    known = tuple(name for name, _ in OUTPUTS[kind])
    if not outputs:
        return known, frozenset(known if binary else ())
    tables = outputs if isinstance(outputs, list) else [outputs]
    names = [output.get("name") if isinstance(output, dict) else None for output in tables[: len(known) + 1]]
    if not all(name in known for name in names) or len(set(map(str, names))) < len(names):
        raise BadRequest(f'"outputs" may name each of {", ".join(known)} once.')
    in_binary = [str(output["name"]) for output in tables if _flag(output, "binary_data", binary)]
    return tuple(map(str, names)), frozenset(in_binary)
