"""Records what an output was made from, and accounts for every row in it. Uses only the storage that it is given."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..container_errors import ContainerError, RowsUnaccounted
from .chunks import Chunk
from .source import InputFile
from .storage import OutputStorage

FORMAT = 1
JOB, MANIFEST = "job.json", "manifest.json"


def predictions_name(number: int) -> str:
    return f"predictions-{number:06}.jsonl"


def bad_name(number: int) -> str:
    return f"bad-{number:06}.jsonl"


def job(model: str, sources: Sequence[InputFile], chunk_rows: int, batch_rows: int) -> dict[str, Any]:
    """Returns everything that determines the bytes of the output."""
    return {
        "format": FORMAT,
        "model_sha256": model,
        "input": [asdict(source) for source in sources],
        "chunk_rows": chunk_rows,
        "batch_rows": batch_rows,
    }


def claim(storage: OutputStorage, described: Mapping[str, Any]) -> None:
    """Starts the output, or checks that the same job started it. Raises `ContainerError`."""
    present = json.loads(storage.create(JOB, _dump(described)))
    if differences := [
        _difference(key, present.get(key), described[key]) for key in described if present.get(key) != described[key]
    ]:
        raise ContainerError(
            f"{storage.location}/job.json: this output was made from something else: {'; '.join(differences)}. Use the "
            "same input, model and options, or another --output."
        )


def unfinished(storage: OutputStorage, chunks: Sequence[Chunk]) -> list[Chunk]:
    names = storage.names()
    return [chunk for chunk in chunks if predictions_name(chunk.number) not in names]


def account(storage: OutputStorage, described: Mapping[str, Any], chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Writes and returns the manifest, counted from the files of all chunks. Raises `RowsUnaccounted`."""
    if missing := unfinished(storage, chunks):
        raise RowsUnaccounted(
            f"{storage.location}: {sum(chunk.rows for chunk in missing):,} rows of the input have no answer "
            f"({len(missing)} chunks have no predictions). Run every shard again with the same --output: it computes "
            "only missing chunks."
        )
    names = storage.names()
    parts = [_part(storage, chunk, bad_name(chunk.number) in names) for chunk in chunks]
    totals = {key: sum(part[key] for part in parts) for key in ("rows", "answered", "bad")}
    made = {**described, **totals, "parts": parts}
    storage.write(MANIFEST, _dump(made))
    return made


def _dump(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


def _part(storage: OutputStorage, chunk: Chunk, has_bad_rows: bool) -> dict[str, Any]:
    predictions = storage.read(predictions_name(chunk.number))
    bad = storage.read(bad_name(chunk.number)) if has_bad_rows else b""
    answered_rows, bad_rows = predictions.count(b"\n"), bad.count(b"\n")
    if answered_rows + bad_rows != chunk.rows:
        raise RowsUnaccounted(
            f"{storage.location}: chunk {chunk.number} has {chunk.rows} rows, but its files have {answered_rows} "
            f"answers and {bad_rows} bad rows. Delete {predictions_name(chunk.number)} and start again."
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
