"""One chunk: answers in input order, and every row in one of the two files."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.batch.answering import BatchPredictor, ChunkAnswers, ChunkCounts, find_model, finish, start
from containers.batch.source import Chunk
from containers.encoder.tensors import Encoding
from tests.containers.batch.batch_model import SETTINGS, row, write_model


def encoding(text: str) -> Encoding:
    return Encoding(tuple(map(ord, text)), (0,) * len(text))


class Letters(BatchPredictor):
    """Answers a row's text in capitals and refuses one longer than ten. Records its batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> list[Encoding | str]:
        texts = [values["text"] for values in rows]
        return [encoding(text) if len(text) <= 10 else "is too long" for text in texts]

    def run(self, batches: Sequence[Sequence[Encoding]]) -> Iterator[Any]:
        self.batches += [[len(code) for code in batch] for batch in batches]
        return (["".join(map(chr, code.token_ids)).upper() for code in batch] for batch in batches)

    def answer(
        self, outputs: Any, codes: Sequence[Encoding], rows: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        return [{"ANSWER": output, "OF": values["id"]} for output, values in zip(outputs, rows, strict=True)]

    def slots(self, codes: Sequence[Encoding]) -> int:
        return len(codes) * max(map(len, codes))


class Scores(Letters):
    """Scores each row as its text says."""

    def answer(
        self, outputs: Any, codes: Sequence[Encoding], rows: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        return [{"scores": [0.5, float(values["text"])]} for values in rows]


def answer_chunk(text: bytes, chunk: Chunk, predictor: BatchPredictor, batch_rows: int) -> ChunkAnswers:
    return finish(start(text, chunk, predictor, batch_rows), predictor)


def jsonl(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def of_texts(texts: Sequence[str]) -> bytes:
    return jsonl({"id": at, "text": text} for at, text in enumerate(texts))


def bad(line: int, id_: object, reason: str) -> dict[str, object]:
    return {"file": "in.jsonl", "line": line, "id": id_, "reason": reason}


def chunk_of(text: bytes, first_line: int = 1) -> Chunk:
    return Chunk(0, "in.jsonl", 0, len(text), first_line, text.count(b"\n"), 0)


def lines(content: bytes) -> list[Any]:
    return [json.loads(line) for line in content.splitlines()]


def test_an_answer_that_is_not_finite_is_a_bad_row() -> None:
    content = of_texts(["1", "nan", "-inf", "2", "inf"])
    answered = answer_chunk(content, chunk_of(content), Scores(), 2)
    assert lines(answered.predictions) == [{"id": 0, "scores": [0.5, 1.0]}, {"id": 3, "scores": [0.5, 2.0]}]
    assert lines(answered.bad) == [bad(at + 1, at, "has an answer that is not finite") for at in (1, 2, 4)]
    assert (answered.counts.answered, answered.counts.bad) == (2, 3)


@given(st.lists(st.text("abc", min_size=1, max_size=14), max_size=40), st.integers(1, 9))
def test_every_row_has_one_line_in_input_order(texts: list[str], batch_rows: int) -> None:
    content, predictor = of_texts(texts), Letters()
    answered = answer_chunk(content, chunk_of(content), predictor, batch_rows)
    good = {at: text for at, text in enumerate(texts) if len(text) <= 10}
    assert lines(answered.predictions) == [{"id": at, "ANSWER": text.upper(), "OF": at} for at, text in good.items()]
    assert lines(answered.bad) == [bad(at + 1, at, "is too long") for at in range(len(texts)) if at not in good]
    lengths = sorted(map(len, good.values()))
    assert [length for batch in predictor.batches for length in batch] == lengths
    slots = sum(len(batch) * max(batch) for batch in predictor.batches)
    assert answered.counts == ChunkCounts(len(good), len(texts) - len(good), sum(lengths), slots)


def test_bad_rows_are_in_line_order() -> None:
    content = b'{"id": "a", "text": "12345678901"}\nrubbish\n\n{"id": "b", "text": "ok"}\n{"text": "c"}\n'
    answered = answer_chunk(content, chunk_of(content, first_line=11), Letters(), 8)
    assert lines(answered.predictions) == [{"id": "b", "ANSWER": "OK", "OF": "b"}]
    assert lines(answered.bad) == [
        bad(11, "a", "is too long"),
        bad(12, None, "is not JSON: Expecting value at character 0"),
        bad(15, None, "has no id"),
    ]


def test_an_id_that_is_not_utf_8_is_returned_unchanged() -> None:
    content = b'{"id": "\\ud800 \xe2\x82\xac", "text": "x"}\n'
    answered = answer_chunk(content, chunk_of(content), Letters(), 8)
    assert lines(answered.predictions) == [{"id": "\ud800 €", "ANSWER": "X", "OF": "\ud800 €"}]


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> BatchPredictor:
    return BatchPredictor.load(write_model(tmp_path_factory.mktemp("model") / "1"))


def test_the_encoder_answers_a_chunk_like_single_rows(predictor: BatchPredictor) -> None:
    rows = [row(number) for number in range(100)]
    content = jsonl(rows)
    together = lines(answer_chunk(content, chunk_of(content), predictor, 16).predictions)
    alone = [lines(answer_chunk(jsonl([values]), chunk_of(b""), predictor, 1).predictions) for values in rows]
    assert [answer["id"] for answer in together] == list(range(100))
    for answer, [expected] in zip(together, alone, strict=True):
        assert answer["RELATION"] == expected["RELATION"]
        assert answer["DUPLICATE_SCORE"] == pytest.approx(expected["DUPLICATE_SCORE"], abs=1e-6)
    assert len({answer["RELATION"] for answer in together}) > 1


BAD_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"id": 1, "title": "a"}, "lacks the fields brand, other_title, other_brand"),
    ({**row(1), "title": 5}, "has a value of type int in title, and text is wanted"),
    ({**row(1), "title": " ", "brand": ""}, "has no text in title, brand"),
    ({**row(1), "title": "a" * 60}, "has 78 tokens, at most 40 are allowed"),
    ({**row(1), "title": "\ud800"}, "is not UTF-8 in title: character 0 is U+D800"),
]


@pytest.mark.parametrize(("values", "reason"), BAD_VALUES)
def test_a_row_that_the_encoder_refuses_does_not_affect_others(
    predictor: BatchPredictor, values: dict[str, Any], reason: str
) -> None:
    content = jsonl([row(0), values, row(2)])
    answered = answer_chunk(content, chunk_of(content), predictor, 16)
    assert [answer["id"] for answer in lines(answered.predictions)] == [0, 2]
    assert lines(answered.bad) == [bad(2, 1, reason)]


def test_a_chunk_of_blank_lines_has_no_answers(predictor: BatchPredictor) -> None:
    assert answer_chunk(b"\n \r\n", chunk_of(b""), predictor, 16).counts == ChunkCounts()


def test_rows_that_fill_a_compiled_batch_count_as_padding(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "1")
    (folder / "settings.json").write_text(replace(SETTINGS, batch_size=6, pad_to=(16, 40)).to_json(), "utf-8")
    assert find_model(folder).batch_rows == 6
    predictor = BatchPredictor.load(folder)
    nine, seventeen, three = (encoding("a" * length) for length in (9, 17, 3))
    assert predictor.slots([nine] * 4) == 6 * 16
    assert predictor.slots([seventeen, three]) == 6 * 40
