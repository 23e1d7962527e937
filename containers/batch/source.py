"""Provides the input as plain files, cuts them into chunks, and a chunk into rows.

A chunk is the unit of work, of loss if a run is killed, and of sorting by length. It has whole lines of one file:
`chunk_rows` rows, fewer in a file's last chunk. Blank lines go with the row before them. A line ends with a newline
byte.

Compressed files and objects of S3 are first copied to a scratch folder. Every shard copies the whole input, because its
chunks are all over it.
"""

import gzip
import hashlib
import json
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..container_errors import ContainerError
from .storage import open_bucket

PLAIN, COMPRESSED = ".jsonl", ".jsonl.gz"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class InputFile:
    """One file of the input. `name` is relative to --input; bytes and sha256 are those of the uncompressed text."""

    name: str
    bytes: int
    sha256: str
    rows: int
    blank_lines: int


@dataclass(frozen=True)
class Chunk:
    """Bytes `start` to `end` of `file`. Lines count from 1."""

    number: int
    file: str
    start: int
    end: int
    first_line: int
    lines: int
    rows: int


@dataclass(frozen=True)
class InputRow:
    line: int
    id: str | int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class BadRow:
    """A line that is not a row. `reason` completes a sentence that starts with the line."""

    line: int
    id: str | int | None
    reason: str


def cut(file: str, lines: Iterable[bytes], chunk_rows: int, number: int) -> Iterator[Chunk]:
    """Yields chunks numbered from `number`. `lines` are the whole file with newlines."""
    start = end = rows = 0
    first_line = line = 1
    for text in lines:
        is_row = not is_blank(text)
        if is_row and rows == chunk_rows:
            yield Chunk(number, file, start, end, first_line, line - first_line, rows)
            number, start, first_line, rows = number + 1, end, line, 0
        end += len(text)
        line += 1
        rows += is_row
    if end > start:
        yield Chunk(number, file, start, end, first_line, line - first_line, rows)


def is_blank(line: bytes) -> bool:
    """Returns whether a line has only white space, or the byte order mark with which some editors start a file."""
    return not line.strip() or not line.removeprefix(BYTE_ORDER_MARK).strip()


def read(text: bytes, first_line: int) -> Iterator[InputRow | BadRow]:
    """Yields the rows of a chunk in order, without blank lines."""
    for line, content in enumerate(text.split(b"\n"), first_line):
        if not is_blank(content):
            yield parse(content, line)


def parse(content: bytes, line: int) -> InputRow | BadRow:
    try:
        values = json.loads(content.removeprefix(BYTE_ORDER_MARK).decode("utf-8"))
    except UnicodeDecodeError as error:
        return BadRow(line, None, f"is not UTF-8: byte {error.start} is 0x{content[error.start]:02x}")
    except json.JSONDecodeError as error:
        return BadRow(line, None, f"is not JSON: {error.msg} at character {error.pos}")
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits; thousands of brackets
        return BadRow(line, None, f"is not read: {error}")
    if not isinstance(values, dict):
        return BadRow(line, None, "is not a JSON object")
    if "id" not in values:
        return BadRow(line, None, "has no id")
    id_ = values["id"]
    if isinstance(id_, bool) or not isinstance(id_, (str, int)):
        return BadRow(line, None, "has an id that is neither text nor an integer")
    return InputRow(line, id_, values)


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
