"""Reads KServe v2 requests and writes answers, as JSON in the shapes that Triton has for the same workload. Pure.

A request has one input for each of the model's fields, upper-cased, BYTES of shape [rows, 1]. An answer has the outputs
of `encoder.answers`, each [rows, 1]. Binary tensors are refused.

No request makes an answer large: an output is given once, and what an error repeats of the request is cut short.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..encoder.answers import OUTPUTS, Answer
from ..encoder.row import Refusal

LONGEST_ANSWER = 6_291_456
"""Bytes, SageMaker's own limit. The model's answers are short; this bounds what a mistake of ours could send."""
LONGEST_ID = 256
SHOWN = 64
"""Characters that an error shows of a name, and names that it shows of a list."""
DATA_TYPES = {"TYPE_STRING": "BYTES", "TYPE_FP32": "FP32", "TYPE_INT64": "INT64"}
_JSON = json.JSONEncoder(allow_nan=False)
BINARY = "application/vnd.sagemaker-triton.binary"


class BadRequest(Exception):
    """A mistake of the caller, in one sentence; it becomes HTTP 400."""


class BadAnswer(Exception):
    """An answer of the model that cannot be sent; it becomes HTTP 500."""


@dataclass(frozen=True)
class Request:
    rows: Sequence[Mapping[str, object]]
    outputs: tuple[str, ...]  # names of the answer's outputs, in order
    id: "str | int | None"


def parse(body: bytes, content_type: str, fields: Sequence[str], task: str, max_rows: int) -> Request:
    """Raises `BadRequest`."""
    if content_type.startswith(BINARY):
        raise BadRequest("binary tensors are not taken here; send JSON.")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}.") from None
    if not isinstance(document, dict) or not isinstance(document.get("inputs"), list):
        raise BadRequest('the body must be an object with a list "inputs".')
    columns = dict(_column(tensor) for tensor in document["inputs"])
    _check_names([field.upper() for field in fields], list(columns), len(document["inputs"]))
    counts = {len(column) for column in columns.values()}
    if len(counts) > 1:
        raise BadRequest("all inputs must have the same number of rows.")
    if not 0 < (count := counts.pop()) <= max_rows:
        raise BadRequest(f"got {count} rows; 1 to {max_rows} are allowed in a request.")
    rows = [{field: columns[field.upper()][row] for field in fields} for row in range(count)]
    for index, row in enumerate(rows):
        _check_text(index, row, count)
    return Request(rows, _wanted(document.get("outputs"), task), _id(document.get("id")))


def check(encoded: Sequence[object]) -> None:
    """Raises `BadRequest` if a row was refused: as in Triton, all rows are answered or none."""
    if any(isinstance(row, Refusal) for row in encoded):
        raise BadRequest(_refusal(encoded))


def answer(request: Request, answers: Sequence[Answer], model: str, task: str) -> bytes:
    """Returns the body of the answer. Raises `BadAnswer` for a number that JSON does not have, and for an answer over
    LONGEST_ANSWER.
    """
    types = dict(OUTPUTS[task])
    outputs = [
        {
            "name": name,
            "datatype": DATA_TYPES[types[name]],
            "shape": [len(answers), 1],
            "data": [row[name] for row in answers],
        }
        for name in request.outputs
    ]
    own = {} if request.id is None else {"id": request.id}
    document = {**own, "model_name": model, "model_version": "1", "outputs": outputs}
    try:
        body = _JSON.encode(document).encode()
    except ValueError as error:
        raise BadAnswer(f"the model's answer is not JSON: {error}.") from None
    if len(body) > LONGEST_ANSWER:
        raise BadAnswer(f"the model's answer has {len(body)} bytes; at most {LONGEST_ANSWER} are sent.")
    return body


def error(message: str) -> bytes:
    return json.dumps({"error": message}).encode()


def _column(tensor: Any) -> tuple[str, list[object]]:
    match tensor:
        case {"name": str(name), "shape": [int(rows), 1], "datatype": "BYTES", "data": list(data)}:
            flat = [each for item in data for each in (item if isinstance(item, list) else [item])]
            if len(flat) != rows:
                raise BadRequest(f"input {_clip(name)} has {len(flat)} elements in data, and its shape says {rows}.")
            return name, flat
        case {"name": str(name)}:
            raise BadRequest(
                f'input {_clip(name)} must have "shape": [rows, 1], "datatype": "BYTES" and a list "data".'
            )
        case _:
            raise BadRequest('every input must be an object with a "name".')


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
        if not isinstance(value, str):
            refusal = f"Row {index} has a value of type {type(value).__name__} in {field}, and text is wanted."
            raise BadRequest(f"{refusal} No row of this request was answered." if count > 1 else refusal)


def _id(given: object) -> "str | int | None":
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    if isinstance(given, str) and len(given) <= LONGEST_ID:
        return given
    raise BadRequest(f'"id" must be a string of at most {LONGEST_ID} characters, or a whole number.')


def _wanted(outputs: Any, task: str) -> tuple[str, ...]:
    """Returns the names of the answer's outputs: those the request names, or all."""
    known = tuple(name for name, _ in OUTPUTS[task])
    if not outputs:
        return known
    given = outputs if isinstance(outputs, list) else [outputs]
    names = [output.get("name") if isinstance(output, dict) else None for output in given[: len(known) + 1]]
    if not all(name in known for name in names):
        raise BadRequest(f"outputs may name {', '.join(known)}.")
    if len(set(map(str, names))) < len(names):
        raise BadRequest(f"outputs may name each of {', '.join(known)} once.")
    return tuple(map(str, names))


def _refusal(encoded: Sequence[object]) -> str:
    """Returns the sentences that name the bad rows, in the words of Triton's ensemble."""
    reasons = [f"Row {index} {row.message}." for index, row in enumerate(encoded) if isinstance(row, Refusal)]
    return " ".join([*reasons, "No row of this request was answered."] if len(encoded) > 1 else reasons)
