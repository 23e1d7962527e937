"""Cuts files of JSON lines into chunks: the unit of work, of loss when killed, and of sorting by length.

Pure. Lines end with a newline byte, whatever stands before it. A chunk is whole lines of one file, `chunk_rows` of them
not blank, a file's last chunk fewer; blank lines go with the row before them. The same text gives the same chunks.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Chunk:
    """Bytes `start` to `end` of `file`, the first of them in line `first_line`, which counts from 1."""

    number: int
    file: str
    start: int
    end: int
    first_line: int
    lines: int
    rows: int


def cut(file: str, lines: Iterable[bytes], chunk_rows: int, number: int) -> Iterator[Chunk]:
    """Chunks numbered from `number`. `lines` are those of the whole file with their newlines."""
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
    """Nothing but white space; the mark that some editors begin a file with counts as none."""
    return not line.strip() or not line.removeprefix(BYTE_ORDER_MARK).strip()


def shard(chunks: Iterable[Chunk], index: int, count: int) -> list[Chunk]:
    """Every `count`th chunk from `index`, which counts from 0."""
    return [chunk for chunk in chunks if chunk.number % count == index]
