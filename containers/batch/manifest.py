"""What an output was made from, and the account of every row in it. Pure but for reading the storage it is given."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .chunks import Chunk
from .errors import MiscountedChunk, ModelMissing, OtherJob
from .source import Source
from .storage import Storage

FORMAT = 1
JOB, MANIFEST = "job.json", "manifest.json"


def predictions_name(number: int) -> str:
    return f"predictions-{number:06}.jsonl"


def bad_name(number: int) -> str:
    return f"bad-{number:06}.jsonl"


def job(model: str, sources: Sequence[Source], chunk_rows: int, batch_rows: int) -> dict[str, Any]:
    """All that the bytes of the output follow from."""
    return {
        "format": FORMAT,
        "model_sha256": model,
        "input": [source.document() for source in sources],
        "chunk_rows": chunk_rows,
        "batch_rows": batch_rows,
    }


def claim(storage: Storage, described: Mapping[str, Any]) -> None:
    """Begins the output, or makes sure that it was begun by the same job."""
    present = json.loads(storage.create(JOB, dump(described)))
    if differences := [
        _difference(key, present.get(key), described[key]) for key in described if present.get(key) != described[key]
    ]:
        raise OtherJob(storage.location, differences)


def account(storage: Storage, described: Mapping[str, Any], chunks: Sequence[Chunk]) -> dict[str, Any]:
    """The manifest, from the rows that are in the files. All chunks are finished."""
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


def model_sha256(folder: Path) -> str:
    """Of all files of the model's folder with their names; what Python keeps of what it imported is no part of it."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and "__pycache__" not in file.parts]
    if not files:
        raise ModelMissing(str(folder), "there is no such folder, or nothing in it")
    lines = [f"{_file_sha256(file)}  {file.relative_to(folder).as_posix()}\n" for file in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _part(storage: Storage, chunk: Chunk, has_bad_rows: bool) -> dict[str, Any]:
    predictions = storage.read(predictions_name(chunk.number))
    bad = storage.read(bad_name(chunk.number)) if has_bad_rows else b""
    answered_rows, bad_rows = predictions.count(b"\n"), bad.count(b"\n")
    if answered_rows + bad_rows != chunk.rows:
        raise MiscountedChunk(storage.location, chunk.number, chunk.rows, answered_rows, bad_rows)
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


def _file_sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _difference(key: str, was: Any, now: Any) -> str:
    if key != "input":
        return f"{key} was {was}, is {now}"
    before, after = ({source["name"]: source for source in sources or ()} for sources in (was, now))
    changed = sorted(name for name in before | after if before.get(name) != after.get(name))
    return f"the input differs in {', '.join(changed) or 'the order of its files'}"
