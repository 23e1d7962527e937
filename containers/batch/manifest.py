"""Describes what an output was made from, and accounts for every row in it. Touches only the storage it is given."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ContainerError, RowsUnaccounted
from .chunks import Chunk
from .source import Source
from .storage import Storage

FORMAT = 1
JOB, MANIFEST = "job.json", "manifest.json"


def predictions_name(number: int) -> str:
    return f"predictions-{number:06}.jsonl"


def bad_name(number: int) -> str:
    return f"bad-{number:06}.jsonl"


def job(model: str, sources: Sequence[Source], chunk_rows: int, batch_rows: int) -> dict[str, Any]:
    """Returns everything that determines the bytes of the output."""
    return {
        "format": FORMAT,
        "model_sha256": model,
        "input": [source.document() for source in sources],
        "chunk_rows": chunk_rows,
        "batch_rows": batch_rows,
    }


def claim(storage: Storage, described: Mapping[str, Any]) -> None:
    """Begins the output, or checks that the same job began it. Raises `ContainerError`."""
    present = json.loads(storage.create(JOB, dump(described)))
    if differences := [
        _difference(key, present.get(key), described[key]) for key in described if present.get(key) != described[key]
    ]:
        raise ContainerError(
            f"{storage.location}/job.json: this output was begun with other things, so it cannot be continued: "
            f"{'; '.join(differences)}. Give them as they were, or another --output."
        )


def account(storage: Storage, described: Mapping[str, Any], chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Returns the manifest, counted from the files of finished chunks. Raises `RowsUnaccounted`."""
    names = storage.names()
    parts = [_part(storage, chunk, bad_name(chunk.number) in names) for chunk in chunks]
    return {
        **described,
        "rows": sum(part["rows"] for part in parts),
        "answered": sum(part["answered"] for part in parts),
        "bad": sum(part["bad"] for part in parts),
        "parts": parts,
    }


def dump(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


def _part(storage: Storage, chunk: Chunk, has_bad_rows: bool) -> dict[str, Any]:
    predictions = storage.read(predictions_name(chunk.number))
    bad = storage.read(bad_name(chunk.number)) if has_bad_rows else b""
    answered_rows, bad_rows = predictions.count(b"\n"), bad.count(b"\n")
    if answered_rows + bad_rows != chunk.rows:
        raise RowsUnaccounted(
            f"{storage.location}: chunk {chunk.number} of the input has {chunk.rows} rows, its files {answered_rows} "
            f"answers and {bad_rows} bad rows. Delete predictions-{chunk.number:06}.jsonl and start again."
        )
    return {
        "chunk": chunk.number,
        "file": chunk.file,
        "first_line": chunk.first_line,
        "lines": chunk.lines,
        "rows": chunk.rows,
        "answered": answered_rows,
        "bad": bad_rows,
        "predictions_sha256": hashlib.sha256(predictions).hexdigest(),
        "bad_sha256": hashlib.sha256(bad).hexdigest() if has_bad_rows else None,
    }


def _difference(key: str, was: Any, now: Any) -> str:
    if key != "input":
        return f"{key} was {was}, is {now}"
    before, after = ({source["name"]: source for source in sources or ()} for sources in (was, now))
    changed = sorted(name for name in before | after if before.get(name) != after.get(name))
    return f"the input differs in {', '.join(changed) or 'the order of its files'}"
