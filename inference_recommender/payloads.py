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

from inference_recommender.kserve import content_type, encode
from workloads import LatencyObjective, Row, UsageError, Workload

SHOWN = 4
"""The most numbers of a vector that an answer on the command line shows."""
MOST_BYTES = 6_291_456
"""Largest request body that InvokeEndpoint takes."""


def request_body(*rows: Row) -> bytes:
    """Returns a KServe v2 JSON request of one row or several, which have the same fields."""
    return encode(tensors(*rows), binary=False).content


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


def header_size(fields: Sequence[str], objective: LatencyObjective) -> int | None:
    """Returns the size of the JSON header of every request; None for requests in JSON.

    All binary requests have one size, because a load test and a job send one Content-Type, which contains it. Spaces
    fill up the headers.
    """
    if objective.payload_format == "json":
        return None
    rows = objective.rows_per_invocation
    empty = encode({field.upper(): [[""]] * rows for field in fields})
    digits = len(str(MOST_BYTES)) - len(str(4 * rows))
    return (empty.header_size or 0) + len(fields) * digits


def content_type_of(workload: Workload) -> str:
    """Returns the Content-Type of every request of a test."""
    return content_type(header_size(workload.model.fields, workload.latency_objective))


def request_bodies(rows: Sequence[Row], objective: LatencyObjective | None = None) -> list[bytes]:
    """Returns the bodies of requests in the objective's form, in order; by default JSON of one row. Every row is in
    one of them; the last body is filled up with the first rows.
    """
    number = objective.rows_per_invocation if objective else 1
    endless = itertools.cycle(rows)
    groups = [tuple(itertools.islice(endless, number)) for _ in range(-(-len(rows) // number))]
    size = header_size(tuple(rows[0]), objective) if objective else None
    if size is None:
        return [request_body(*group) for group in groups]
    encoded = [encode(tensors(*group)) for group in groups]
    return [each.content[: each.header_size].ljust(size) + each.content[each.header_size :] for each in encoded]


def check_payloads(workload: str, rows: Sequence[Row], objective: LatencyObjective | None = None) -> None:
    """Raises `UsageError` for the first request that no endpoint would take."""
    for number, body in enumerate(request_bodies(rows, objective), start=1):
        if len(body) > MOST_BYTES:
            of = f" of {objective.rows_per_invocation} rows" if objective and objective.rows_per_invocation > 1 else ""
            raise UsageError(
                f"workloads/{workload}/payloads.jsonl: request {number}{of} is {len(body):,} bytes. "
                f"Allowed: {MOST_BYTES:,} at most, as InvokeEndpoint takes."
            )


def payload_archive(rows: Sequence[Row], objective: LatencyObjective | None = None) -> bytes:
    """Returns a tar.gz with one request body per file."""
    suffix = "bin" if objective and objective.payload_format == "binary" else "json"
    bodies = enumerate(request_bodies(rows, objective))
    return tar_gz({f"payload-{number:05d}.{suffix}": body for number, body in bodies})


def tar_gz(files: Mapping[str, bytes]) -> bytes:
    """Returns an archive of the files' contents by name. The same files give the same bytes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)
