"""Request bodies for a workload's rows, the archive of them that a job takes, and answers read back. Pure.

A row is the text of each of the model's fields; a field's tensor is its name in capitals.
"""

import gzip
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from workloads import Row, UsageError

MOST_BYTES = 6_291_456
"""Largest request body that InvokeEndpoint takes."""


def request_body(row: Row) -> bytes:
    """Returns a KServe v2 JSON request of `row` as a batch of one."""
    tensors = [
        {"name": field.upper(), "shape": [1, 1], "datatype": "BYTES", "data": [text]} for field, text in row.items()
    ]
    return json.dumps({"inputs": tensors}, ensure_ascii=False).encode()


def row_of(argument: str, fields: Sequence[str]) -> Row:
    """Parses a command-line argument as a row: the text of the only field, or a JSON object of all. Raises
    `UsageError`.
    """
    if len(fields) == 1:
        return {fields[0]: argument}
    try:
        row = json.loads(argument)
    except ValueError:
        row = None
    if not isinstance(row, dict) or set(row) != set(fields) or not all(isinstance(text, str) for text in row.values()):
        example = json.dumps(dict.fromkeys(fields, "…"), ensure_ascii=False)
        raise UsageError(f"TEXT: got '{argument[:60]}', but this model has several fields: give {example}.")
    return row


def tensors(row: Row) -> dict[str, list[list[str]]]:
    """Returns the inputs of a request for `row` as a batch of one."""
    return {field.upper(): [[text]] for field, text in row.items()}


def answer(outputs: Mapping[str, npt.NDArray[Any]]) -> str:
    """Returns the outputs for one row: a text alone, the others with their names.

    Text comes first, because an ensemble returns its outputs in no fixed order.
    """
    (_, first), *others = sorted(outputs.items(), key=lambda output: output[1].dtype != object)
    named = [f"{name.lower()} {_plain(values)}" for name, values in others]
    return ", ".join([_plain(first), *named])


def _plain(values: npt.NDArray[Any]) -> str:
    value = values.flat[0]
    return value.decode() if isinstance(value, bytes) else str(value)


def check_payloads(workload: str, rows: Sequence[Row]) -> None:
    """Raises `UsageError` for the first row whose request no endpoint would take."""
    for number, row in enumerate(rows, start=1):
        if (size := len(request_body(row))) > MOST_BYTES:
            raise UsageError(
                f"workloads/{workload}/payloads.jsonl: request {number} is {size:,} bytes. "
                f"Allowed: {MOST_BYTES:,} at most, as InvokeEndpoint takes."
            )


def payload_archive(rows: Sequence[Row]) -> bytes:
    """Returns a tar.gz with one request body per file. The same rows give the same bytes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for number, row in enumerate(rows):
            body = request_body(row)
            member = tarfile.TarInfo(f"payload-{number:05d}.json")
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return gzip.compress(plain.getvalue(), mtime=0)
