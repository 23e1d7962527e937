"""Cutting, reading and batching: every row once, in order."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.batch.source import BadRow, Chunk, InputRow, cut, parse, read

BLANK = [b"", b"  ", b"\t", b"\xef\xbb\xbf"]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
rows_of_json = st.builds(
    lambda id_, text, ascii_: json.dumps({"id": id_, "text": text}, ensure_ascii=ascii_).encode(),
    st.integers() | texts,
    texts,
    st.booleans(),
)
rubbish = st.binary(min_size=1, max_size=6).map(lambda line: line.replace(b"\n", b"-"))
files = st.builds(
    lambda lines, last: b"".join(content + end for content, end in lines) + last,
    st.lists(
        st.tuples(rows_of_json | rubbish | st.sampled_from(BLANK), st.sampled_from([b"\n", b"\r\n"])), max_size=30
    ),
    rows_of_json | st.sampled_from(BLANK),
)


def cut_file(content: bytes, chunk_rows: int) -> list[Chunk]:
    return list(cut("in.jsonl", io.BytesIO(content), chunk_rows, 0))


@given(files, st.integers(1, 12))
def test_chunks_cover_the_whole_file(content: bytes, chunk_rows: int) -> None:
    chunks = cut_file(content, chunk_rows)
    assert b"".join(content[chunk.start : chunk.end] for chunk in chunks) == content
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    assert all(chunk.rows == chunk_rows for chunk in chunks[:-1])
    assert all(chunk.rows <= chunk_rows for chunk in chunks[-1:])


@given(files, st.integers(1, 12))
def test_every_chunk_size_gives_the_same_rows_and_line_numbers(content: bytes, chunk_rows: int) -> None:
    """Also if a multi-byte character, \\r\\n or a blank line is next to the cut."""
    chunks = cut_file(content, chunk_rows)
    by_chunk = [list(read(content[chunk.start : chunk.end], chunk.first_line)) for chunk in chunks]
    assert [row for rows in by_chunk for row in rows] == list(read(content, 1))
    assert [len(rows) for rows in by_chunk] == [chunk.rows for chunk in chunks]


def test_a_row_keeps_its_id_and_all_its_keys() -> None:
    assert parse(b'{"id": "a-1", "title": "x", "other": [1]}\r', 3) == InputRow(
        3, "a-1", {"id": "a-1", "title": "x", "other": [1]}
    )


BAD_ROWS = {
    b"{": BadRow(7, None, "is not JSON: Expecting property name enclosed in double quotes at character 1"),
    b'{"id": 1} {"id": 2}': BadRow(7, None, "is not JSON: Extra data at character 10"),
    b'{"id": "\xff"}': BadRow(7, None, "is not UTF-8: byte 8 is 0xff"),
    b"[1]": BadRow(7, None, "is not a JSON object"),
    b'{"title": "x"}': BadRow(7, None, "has no id"),
    b'{"id": null}': BadRow(7, None, "has an id that is neither text nor an integer"),
    b'{"id": true}': BadRow(7, None, "has an id that is neither text nor an integer"),
    b'{"id": 1.5}': BadRow(7, None, "has an id that is neither text nor an integer"),
}


@pytest.mark.parametrize(("content", "expected"), BAD_ROWS.items())
def test_an_invalid_line_is_a_bad_row_with_a_reason(content: bytes, expected: BadRow) -> None:
    assert parse(content, 7) == expected
    assert str(parse(b"[" * 1_000_000, 7)).startswith("BadRow(line=7, id=None, reason='is not read: ")
