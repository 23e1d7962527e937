"""Provides the input as plain files, and reads it once to count, hash and cut it.

Compressed files and objects of S3 are first copied to a scratch folder. Every shard copies the whole input, because its
chunks are all over it.
"""

import gzip
import hashlib
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..container_errors import ContainerError
from .chunks import Chunk, cut
from .storage import open_bucket

PLAIN, COMPRESSED = ".jsonl", ".jsonl.gz"


@dataclass(frozen=True)
class InputFile:
    """One file of the input. `name` is relative to --input; bytes and sha256 are those of the uncompressed text."""

    name: str
    bytes: int
    sha256: str
    rows: int
    blank_lines: int


def find(location: str, scratch: Path) -> dict[str, Path]:
    """Returns the plain files of the input by name, sorted by name. Raises `ContainerError`."""
    path = Path(location)
    if location.startswith("s3://"):
        files = _fetch(location, scratch)
    elif path.is_dir():
        files = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
    else:
        files = {path.name: path} if path.is_file() else {}
    names = sorted(name for name in files if name.endswith((PLAIN, COMPRESSED)))
    if not names:
        raise ContainerError(f"--input {location}: there is no .jsonl or .jsonl.gz file.")
    return {name: _plain(files[name], name, scratch / f"text-{at}") for at, name in enumerate(names)}


def survey(files: dict[str, Path], chunk_rows: int) -> tuple[list[InputFile], list[Chunk]]:
    """Reads every file to its end, and returns the files and their chunks."""
    sources: list[InputFile] = []
    chunks: list[Chunk] = []
    for name, path in files.items():
        digest = hashlib.sha256()
        with path.open("rb") as handle:
            cuts = list(cut(name, _hashed(handle, digest), chunk_rows, len(chunks)))
        rows, lines = sum(chunk.rows for chunk in cuts), sum(chunk.lines for chunk in cuts)
        size = cuts[-1].end if cuts else 0
        sources.append(InputFile(name, size, digest.hexdigest(), rows, lines - rows))
        chunks += cuts
    return sources, chunks


def _hashed(handle: BinaryIO, digest: Any) -> Iterator[bytes]:
    for line in handle:
        digest.update(line)
        yield line


def _fetch(location: str, scratch: Path) -> dict[str, Path]:
    """Copies the objects to numbered files: a key may have characters that a path cannot have."""
    bucket = open_bucket(location)
    copies: dict[str, Path] = {}
    for at, (name, key) in enumerate(bucket.objects().items()):
        if name.endswith((PLAIN, COMPRESSED)):
            copies[name] = scratch / f"object-{at}"
            bucket.fetch(key, copies[name])
    return copies


def _plain(file: Path, name: str, copy: Path) -> Path:
    if name.endswith(PLAIN):
        return file
    if not file.stat().st_size:  # Python reads it as an empty text, but gzip's file of an empty text has 20 bytes
        raise ContainerError(f"{name}: is empty, as after an incomplete upload. Replace or remove the file.")
    try:
        with gzip.open(file, "rb") as compressed, copy.open("wb") as text:
            shutil.copyfileobj(compressed, text)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ContainerError(f"{name}: cannot be read as gzip ({error}). Replace or remove the file.") from None
    return copy
