"""Chunks: every row is read once, in order. Answers are in input order, and every row is in one of the two files."""

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.batch.answering import BatchPredictor, ChunkAnswers, ChunkCounts, find_model
from containers.batch.source import BadRow, Chunk, InputRow, cut, parse, read
from containers.encoder.predictor import Predictor
from containers.encoder.preprocess import Preprocessor
from tests.containers.batch.batch_run import SETTINGS, row, write_model


@pytest.fixture(scope="module")
def predictor(model: Path) -> BatchPredictor:
    return BatchPredictor.load(model)


def answer_chunk(content: bytes, predictor: BatchPredictor, batch_rows: int = 16, first_line: int = 1) -> ChunkAnswers:
    chunk = Chunk(0, "in.jsonl", 0, len(content), first_line, content.count(b"\n"), 0)
    return predictor.start(content, chunk, batch_rows)()


def jsonl(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def lines(content: bytes) -> list[Any]:
    return [json.loads(line) for line in content.splitlines()]


def bad(line: int, id_: object, reason: str) -> dict[str, object]:
    return {"file": "in.jsonl", "line": line, "id": id_, "reason": reason}


def test_a_chunk_is_answered_like_single_rows(predictor: BatchPredictor) -> None:
    rows = [row(number) for number in range(100)]
    together = lines(answer_chunk(jsonl(rows), predictor).predictions)
    alone = [lines(answer_chunk(jsonl([values]), predictor, 1).predictions) for values in rows]
    assert [answer["id"] for answer in together] == list(range(100))
    for answer, [expected] in zip(together, alone, strict=True):
        assert answer["RELATION"] == expected["RELATION"]
        assert answer["DUPLICATE_SCORE"] == pytest.approx(expected["DUPLICATE_SCORE"], abs=1e-5)
    assert len({answer["RELATION"] for answer in together}) > 1


def test_an_answer_that_is_not_finite_is_a_bad_row(model: Path) -> None:
    class Infinite:
        def run(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
            scores = np.array([0.5, np.nan, np.inf], np.float32)[: len(tensors["input_ids"])]
            return {"logits": np.zeros((len(scores), 3), np.float32), "score": scores}

    predictor = BatchPredictor(Predictor(Preprocessor.load(model), Infinite()), 1)
    answered = answer_chunk(jsonl([{**row(0), "id": at} for at in range(3)]), predictor)
    assert [answer["id"] for answer in lines(answered.predictions)] == [0]
    assert lines(answered.bad) == [bad(at + 1, at, "has an answer that is not finite") for at in (1, 2)]
    assert (answered.counts.answered, answered.counts.bad) == (1, 2)


def test_bad_rows_are_in_line_order_and_ids_are_returned_unchanged(predictor: BatchPredictor) -> None:
    rows = [{**row(0), "title": "a" * 60}, {**row(1), "id": "\ud800 €"}]
    content = jsonl(rows[:1]) + b"rubbish\n\n" + jsonl(rows[1:]) + b'{"text": "c"}\n'
    answered = answer_chunk(content, predictor, first_line=11)
    assert [answer["id"] for answer in lines(answered.predictions)] == ["\ud800 €"]
    assert lines(answered.bad) == [
        bad(11, 0, "has 71 tokens, at most 40 are allowed"),
        bad(12, None, "is not JSON: Expecting value at character 0"),
        bad(15, None, "has no id"),
    ]


BAD_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"id": 1, "title": "a"}, "lacks the fields brand, other_title, other_brand"),
    ({**row(1), "title": 5}, "has a value of type int in title, and text is wanted"),
    ({**row(1), "title": " ", "brand": ""}, "has no text in title, brand"),
    ({**row(1), "title": "\ud800"}, "is not UTF-8 in title: character 0 is U+D800"),
]


@pytest.mark.parametrize(("values", "reason"), BAD_VALUES)
def test_a_row_that_the_encoder_refuses_does_not_affect_others(
    predictor: BatchPredictor, values: dict[str, Any], reason: str
) -> None:
    answered = answer_chunk(jsonl([row(0), values, row(2)]), predictor)
    assert [answer["id"] for answer in lines(answered.predictions)] == [0, 2]
    assert lines(answered.bad) == [bad(2, 1, reason)]


def test_rows_that_fill_a_compiled_batch_count_as_padding(tmp_path: Path, predictor: BatchPredictor) -> None:
    assert answer_chunk(b"\n \r\n", predictor).counts == ChunkCounts()
    folder = write_model(tmp_path / "1")
    (folder / "settings.json").write_text(replace(SETTINGS, batch_size=6, pad_to=(16, 40)).to_json(), "utf-8")
    assert find_model(folder).batch_rows == 6
    compiled = BatchPredictor.load(folder)
    short = {"id": 1, "title": "abc", "brand": "d", "other_title": "e", "other_brand": "f"}
    tokens = answer_chunk(jsonl([short]), compiled).counts.tokens
    assert tokens <= 16
    assert answer_chunk(jsonl([short] * 4), compiled).counts == ChunkCounts(4, 0, 4 * tokens, 6 * 16)
    longer = {**short, "title": "a" * 20}
    assert answer_chunk(jsonl([longer, short]), compiled).counts.slots == 6 * 40


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
