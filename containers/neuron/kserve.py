"""Reads KServe v2 requests and writes answers, in the shapes that Triton has for the same workload. Pure.

A request has one input for each of the model's fields, upper-cased, BYTES of shape [rows, 1]. An answer has the outputs
of `encoder.answers`, each [rows, 1], or [rows, numbers] where an answer has several.

Both may be JSON or binary: then the JSON is followed by the raw tensors, little-endian, with 4 bytes before each
element of BYTES that hold its length. Sources: KServe's Open Inference Protocol, Triton's extension_binary_data.

No request makes an answer large: an output is given once, and what an error repeats of the request is cut short.
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

LONGEST_ANSWER = 6_291_456
"""Bytes, SageMaker's own limit. The model's answers are short; this bounds what a mistake of ours could send."""
LONGEST_ID = 256
SHOWN = 64
"""Characters that an error shows of a name, and names that it shows of a list."""
DATA_TYPES = {"TYPE_STRING": "BYTES", "TYPE_FP32": "FP32", "TYPE_INT64": "INT64"}
_JSON = json.JSONEncoder(allow_nan=False)
JSON_SIZE = "Inference-Header-Content-Length"
SAGEMAKER_BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
"""SageMaker passes no header of a caller's on, so its Triton has the size in the Content-Type."""
_SIZE = re.compile(rb"[0-9]{1,9}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LENGTH = struct.Struct("<I")
_FORMATS = {"TYPE_FP32": "f", "TYPE_INT64": "q"}


class BadRequest(Exception):
    """A mistake of the caller, in one sentence; it becomes HTTP 400."""


class BadAnswer(Exception):
    """An answer of the model that cannot be sent; it becomes HTTP 500."""


@dataclass(frozen=True)
class Request:
    rows: Sequence[Mapping[str, object]]
    outputs: tuple[str, ...]  # names of the answer's outputs, in order
    binary: frozenset[str]  # those of them that are wanted in binary
    id: "str | int | None"


class Body(NamedTuple):
    content: bytes
    json_size: "int | None"  # bytes of a binary body's JSON; None where all is JSON


def json_size(headers: Mapping[bytes, bytes]) -> "int | None":
    """Returns the bytes of a binary body's JSON, which a header says; None where all is JSON. Raises `BadRequest`."""
    size = headers.get(JSON_SIZE.lower().encode())
    content_type = headers.get(b"content-type", b"")
    if content_type.startswith(b"application/vnd.sagemaker-triton.binary"):
        size = content_type.removeprefix(SAGEMAKER_BINARY.encode())
    if size is not None and not _SIZE.fullmatch(size):
        shown = _clip(size.decode("latin-1"))
        raise BadRequest(f"got '{shown}' for the size of the JSON; {JSON_SIZE}: N or {SAGEMAKER_BINARY}N is wanted.")
    return None if size is None else int(size)


def parse(body: Body, fields: Sequence[str], kind: str, max_rows: int) -> Request:
    """Reads a request to a model of a `Settings.kind`. Raises `BadRequest`."""
    content, size = body
    if size is not None and size > len(content):
        raise BadRequest(f"the JSON should have {size} bytes, and the body has {len(content)}.")
    try:
        document = json.loads(content if size is None else content[:size])
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}.") from None
    if not isinstance(document, dict) or not isinstance(document.get("inputs"), list):
        raise BadRequest('the body must be an object with a list "inputs".')
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
        raise BadRequest("all inputs must have the same number of rows.")
    if not 0 < (count := counts.pop()) <= max_rows:
        raise BadRequest(f"got {count} rows; 1 to {max_rows} are allowed in a request.")
    rows = [{field: columns[field.upper()][row] for field in fields} for row in range(count)]
    for index, row in enumerate(rows):
        _check_text(index, row, count)
    outputs, binary = _wanted(document.get("outputs"), kind, _parameter(document, "binary_data_output", False))
    return Request(rows, outputs, binary, _id(document.get("id")))


def check(encoded: Sequence[object]) -> None:
    """Raises `BadRequest` if a row was refused: as in Triton, all rows are answered or none."""
    if any(isinstance(row, Refusal) for row in encoded):
        raise BadRequest(_refusal(encoded))


def answer(request: Request, answers: Sequence[Answer], model: str, kind: str) -> Body:
    """Returns the body of the answer. Raises `BadAnswer` for a number that is not finite, and for an answer over
    LONGEST_ANSWER.
    """
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
    try:
        header = _JSON.encode(document).encode()
    except ValueError as error:
        raise BadAnswer(f"the model's answer is not JSON: {error}.") from None
    content = b"".join((header, *tensors))
    if len(content) > LONGEST_ANSWER:
        raise BadAnswer(f"the model's answer has {len(content)} bytes; at most {LONGEST_ANSWER} are sent.")
    return Body(content, len(header) if tensors else None)


def error(message: str) -> bytes:
    return json.dumps({"error": message}).encode()


def _column(tensor: Any, rest: memoryview, max_rows: int) -> "tuple[str, list[object], memoryview]":
    """Returns an input's name and elements, and what is left of the binary tensors."""
    if isinstance(tensor, dict) and any(isinstance(each, bool) for each in _list(tensor.get("shape"))):
        tensor = {**tensor, "shape": None}  # Python's true is an int
    match tensor:
        case {
            "name": str(name),
            "shape": [int(rows), 1],
            "datatype": "BYTES",
            "parameters": {"binary_data_size": int(size)},
        }:
            if not 0 <= size <= len(rest):
                raise BadRequest(f"input {_clip(name)} has {size} bytes, of which {len(rest)} are there.")
            return name, _elements(name, rest[:size], rows, max_rows), rest[size:]
        case {"name": str(name), "shape": [int(rows), 1], "datatype": "BYTES", "data": list(data)}:
            flat = [each for item in data for each in (item if isinstance(item, list) else [item])]
            if len(flat) != rows:
                raise BadRequest(f"input {_clip(name)} has {len(flat)} elements in data, and its shape says {rows}.")
            return name, flat, rest
        case {"name": str(name)}:
            raise BadRequest(
                f'input {_clip(name)} must have "shape": [rows, 1], "datatype": "BYTES" and a list "data" or '
                '"parameters": {"binary_data_size": bytes}.'
            )
        case _:
            raise BadRequest('every input must be an object with a "name".')


def _list(value: object) -> "list[object]":
    return value if isinstance(value, list) else []


def _elements(name: str, raw: memoryview, rows: int, max_rows: int) -> "list[object]":
    """Returns the elements of a binary tensor of BYTES. More than `max_rows` are not read."""
    elements: list[object] = []
    at = 0
    while at < len(raw) and len(elements) <= max_rows:
        end = at + _LENGTH.size
        if end <= len(raw):
            end += _LENGTH.unpack_from(raw, at)[0]
        if end > len(raw) or end < at + _LENGTH.size:
            raise BadRequest(f"element {len(elements)} of input {_clip(name)} is cut short.")
        elements.append(bytes(raw[at + _LENGTH.size : end]))
        at = end
    if len(elements) <= max_rows and len(elements) != rows:
        raise BadRequest(f"input {_clip(name)} has {len(elements)} elements, and its shape says {rows}.")
    return elements


def _raw(kind: str, values: "Sequence[Any]") -> bytes:
    """Returns the values as a binary tensor."""
    if kind == "TYPE_STRING":
        encoded = [value.encode() for value in values]
        return b"".join(part for value in encoded for part in (_LENGTH.pack(len(value)), value))
    if not all(map(math.isfinite, values)):
        raise BadAnswer("the model's answer has a number that is not finite.")
    return struct.pack(f"<{len(values)}{_FORMATS[kind]}", *values)


def _parameter(table: Mapping[str, Any], name: str, default: bool) -> bool:
    """Returns a parameter of a request or of an output."""
    parameters = table.get("parameters")
    given = parameters.get(name, default) if isinstance(parameters, dict) else default
    if not isinstance(given, bool):
        raise BadRequest(f'"{name}" must be true or false.')
    return given


def _check_names(wanted: Sequence[str], given: Sequence[str], count: int) -> None:
    if count > len(given):
        raise BadRequest("an input is given twice.")
    if sorted(wanted) != sorted(given):
        shown = ", ".join(_clip(name) for name in given[:SHOWN]) + (", …" if len(given) > SHOWN else "")
        raise BadRequest(f"got the inputs {shown or 'none'}; wanted are {', '.join(wanted)}.")


def _clip(name: str) -> str:
    return name if len(name) <= SHOWN else name[:SHOWN] + "…"


def _check_text(index: int, row: Mapping[str, object], count: int) -> None:
    """Refuses what is no text before it waits in the queue: it may be a million small objects."""
    for field, value in row.items():
        if not isinstance(value, (str, bytes)):
            refusal = f"Row {index} has a value of type {type(value).__name__} in {field}, and text is wanted."
            raise BadRequest(f"{refusal} No row of this request was answered." if count > 1 else refusal)
        if isinstance(value, str) and _SURROGATE.search(value):
            refusal = f"Row {index} has half of a character in {field}, which is no text in UTF-8."
            raise BadRequest(f"{refusal} No row of this request was answered." if count > 1 else refusal)


def _id(given: object) -> "str | int | None":
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    if isinstance(given, str) and len(given) <= LONGEST_ID:
        return given
    raise BadRequest(f'"id" must be a string of at most {LONGEST_ID} characters, or a whole number.')


def _wanted(outputs: Any, kind: str, binary: bool) -> "tuple[tuple[str, ...], frozenset[str]]":
    """Returns the names of the answer's outputs, those the request names or all, and which are wanted in binary."""
    known = tuple(name for name, _ in OUTPUTS[kind])
    if not outputs:
        return known, frozenset(known if binary else ())
    given = outputs if isinstance(outputs, list) else [outputs]
    names = [output.get("name") if isinstance(output, dict) else None for output in given[: len(known) + 1]]
    if not all(name in known for name in names):
        raise BadRequest(f"outputs may name {', '.join(known)}.")
    if len(set(map(str, names))) < len(names):
        raise BadRequest(f"outputs may name each of {', '.join(known)} once.")
    wanted = [str(output["name"]) for output in given if _parameter(output, "binary_data", binary)]
    return tuple(map(str, names)), frozenset(wanted)


def _refusal(encoded: Sequence[object]) -> str:
    """Returns the sentences that name the bad rows, in the words of Triton's ensemble."""
    reasons = [f"Row {index} {row.message}." for index, row in enumerate(encoded) if isinstance(row, Refusal)]
    return " ".join([*reasons, "No row of this request was answered."] if len(encoded) > 1 else reasons)
