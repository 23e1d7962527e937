"""One line of input as a row, or as the reason why it is none. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .chunks import BYTE_ORDER_MARK, is_blank


@dataclass(frozen=True)
class Row:
    line: int
    id: str | int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class BadRow:
    line: int
    id: str | int | None
    reason: str


def read(text: bytes, first_line: int) -> Iterator[Row | BadRow]:
    """The rows of a chunk in order; blank lines are counted and left out."""
    for line, content in enumerate(text.split(b"\n"), first_line):
        if not is_blank(content):
            yield parse(content, line)


def parse(content: bytes, line: int) -> Row | BadRow:
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
    return Row(line, id_, values)
