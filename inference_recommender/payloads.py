"""Request bodies for a workload's rows, the archive of them that a job takes, and answers read back. Pure.

A row is the text of each of the model's fields; a field's tensor is its name in capitals.
"""

import gzip
import io
import itertools
import json
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from workloads import Row, UsageError

SHOWN = 4
"""The most numbers of a vector that an answer on the command line shows."""
MOST_BYTES = 6_291_456
"""Largest request body that InvokeEndpoint takes."""


def request_body(*rows: Row) -> bytes:
    """Returns a KServe v2 JSON request of one row or several, which have the same fields."""
    tensors = [
        {"name": field.upper(), "shape": [len(rows), 1], "datatype": "BYTES", "data": [row[field] for row in rows]}
        for field in rows[0]
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


def tensors(*rows: Row) -> dict[str, list[list[str]]]:
    """Returns the inputs of a request for one row or several, as the client takes them."""
    return {field.upper(): [[row[field]] for row in rows] for field in rows[0]}


def answer(outputs: Mapping[str, npt.NDArray[Any]]) -> str:
    """Returns the outputs for one row: a text without a name, the others with their names.

    Text comes first, because an ensemble returns its outputs in no fixed order.
    """
    (_, first), *others = sorted(outputs.items(), key=lambda output: output[1].dtype != object)
    named = [f"{name.lower()} {_plain(values)}" for name, values in others]
    return ", ".join([_plain(first), *named])


def _plain(values: npt.NDArray[Any]) -> str:
    """Returns a value, or of several numbers the first and their count."""
    if values.size > SHOWN:
        return f"[{', '.join(f'{value:.4g}' for value in values.flat[:SHOWN])}, … of {values.size}]"
    if values.size > 1:
        return f"[{', '.join(f'{value:.4g}' for value in values.flat)}]"
    value = values.flat[0]
    return value.decode() if isinstance(value, bytes) else str(value)


def request_bodies(rows: Sequence[Row], rows_per_invocation: int = 1) -> list[bytes]:
    """Returns the bodies of requests with `rows_per_invocation` rows each, in order. Every row is in one of them; the
    last body is filled up with the first rows.
    """
    count = -(-len(rows) // rows_per_invocation)
    endless = itertools.cycle(rows)
    return [request_body(*itertools.islice(endless, rows_per_invocation)) for _ in range(count)]


def check_payloads(workload: str, rows: Sequence[Row], rows_per_invocation: int = 1) -> None:
    """Raises `UsageError` for the first request that no endpoint would take."""
    for number, body in enumerate(request_bodies(rows, rows_per_invocation), start=1):
        if len(body) > MOST_BYTES:
            of = f" of {rows_per_invocation} rows" if rows_per_invocation > 1 else ""
            raise UsageError(
                f"workloads/{workload}/payloads.jsonl: request {number}{of} is {len(body):,} bytes. "
                f"Allowed: {MOST_BYTES:,} at most, as InvokeEndpoint takes."
            )


def payload_archive(rows: Sequence[Row], rows_per_invocation: int = 1) -> bytes:
    """Returns a tar.gz with one request body per file."""
    bodies = enumerate(request_bodies(rows, rows_per_invocation))
    return tar_gz({f"payload-{number:05d}.json": body for number, body in bodies})


def tar_gz(files: Mapping[str, bytes]) -> bytes:
    """Returns an archive of the files' contents by name. The same files give the same bytes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)
