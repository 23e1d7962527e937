"""Cuts files of JSON lines into chunks, and a chunk into rows. Pure.

A chunk is the unit of work, of loss if a run is killed, and of sorting by length. It has whole lines of one file:
`chunk_rows` rows, fewer in a file's last chunk. Blank lines go with the row before them. A line ends with a newline
byte.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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


def shard(chunks: Iterable[Chunk], index: int, count: int) -> list[Chunk]:
    """Returns every `count`th chunk from `index`, which counts from 0."""
    return [chunk for chunk in chunks if chunk.number % count == index]


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
