"""One chunk: answers in input order whatever the batches, and every row in one of the two files."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.batch.answering import Answered, Counts, finish, start
from containers.batch.chunks import Chunk
from containers.batch.predictor import Encoded, EncoderPredictor, Predictor, Values, find_model
from containers.encoder.tensors import Encoding
from tests.containers.batch.batch_model import SETTINGS, row, write_model


class Letters:
    """Answers a row's text in capitals; one longer than ten is refused. Remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def encode(self, rows: Sequence[Values]) -> list[Encoded | str]:
        texts = [values["text"] for values in rows]
        return [Encoded(len(text), text) if len(text) <= 10 else "is too long" for text in texts]

    def run(self, batches: Sequence[Sequence[Encoded]]) -> Iterator[list[str]]:
        self.batches += [[code.length for code in batch] for batch in batches]
        return ([code.content.upper() for code in batch] for batch in batches)

    def answer(self, outputs: Any, encoded: Sequence[Encoded], rows: Sequence[Values]) -> list[dict[str, Any]]:
        return [{"ANSWER": output, "OF": values["id"]} for output, values in zip(outputs, rows, strict=True)]

    def slots(self, encoded: Sequence[Encoded]) -> int:
        return len(encoded) * max(code.length for code in encoded)


def answer_chunk(text: bytes, chunk: Chunk, predictor: Predictor, batch_rows: int) -> Answered:
    return finish(start(text, chunk, predictor, batch_rows), predictor)


def chunk_of(text: bytes, first_line: int = 1) -> Chunk:
    return Chunk(0, "in.jsonl", 0, len(text), first_line, text.count(b"\n"), 0)


def lines(content: bytes) -> list[Any]:
    return [json.loads(line) for line in content.splitlines()]


class Scores(Letters):
    """Scores each row as its text says."""

    def answer(self, outputs: Any, encoded: Sequence[Encoded], rows: Sequence[Values]) -> list[dict[str, Any]]:
        return [{"scores": [0.5, float(values["text"])]} for values in rows]


def test_an_answer_that_json_cannot_hold_is_a_bad_row() -> None:
    texts = ["1", "nan", "-inf", "2", "inf"]
    content = "".join(json.dumps({"id": at, "text": text}) + "\n" for at, text in enumerate(texts)).encode()
    answered = answer_chunk(content, chunk_of(content), Scores(), 2)
    assert lines(answered.predictions) == [{"id": 0, "scores": [0.5, 1.0]}, {"id": 3, "scores": [0.5, 2.0]}]
    assert lines(answered.bad) == [
        {"file": "in.jsonl", "line": at + 1, "id": at, "reason": "has an answer that is not finite"} for at in (1, 2, 4)
    ]
    assert (answered.counts.answered, answered.counts.bad) == (2, 3)


@given(st.lists(st.text("abc", max_size=14), max_size=40), st.integers(1, 9))
def test_rows_come_out_in_input_order_and_once(texts: list[str], batch_rows: int) -> None:
    content = "".join(json.dumps({"id": at, "text": text}) + "\n" for at, text in enumerate(texts)).encode()
    predictor = Letters()
    answered = answer_chunk(content, chunk_of(content), predictor, batch_rows)
    assert lines(answered.predictions) == [
        {"id": at, "ANSWER": text.upper(), "OF": at} for at, text in enumerate(texts) if len(text) <= 10
    ]
    assert lines(answered.bad) == [
        {"file": "in.jsonl", "line": at + 1, "id": at, "reason": "is too long"}
        for at, text in enumerate(texts)
        if len(text) > 10
    ]
    lengths = [len(text) for text in texts if len(text) <= 10]
    assert [length for batch in predictor.batches for length in batch] == sorted(lengths)
    slots = sum(len(batch) * max(batch) for batch in predictor.batches)
    assert answered.counts == Counts(
        answered=len(lengths), bad=len(texts) - len(lengths), tokens=sum(lengths), slots=slots
    )


def test_lines_that_are_no_rows_and_rows_that_are_refused_stand_in_line_order() -> None:
    content = b'{"id": "a", "text": "12345678901"}\nrubbish\n\n{"id": "b", "text": "ok"}\n{"text": "c"}\n'
    answered = answer_chunk(content, chunk_of(content, first_line=11), Letters(), 8)
    assert lines(answered.predictions) == [{"id": "b", "ANSWER": "OK", "OF": "b"}]
    assert lines(answered.bad) == [
        {"file": "in.jsonl", "line": 11, "id": "a", "reason": "is too long"},
        {
            "file": "in.jsonl",
            "line": 12,
            "id": None,
            "reason": "is not JSON: Expecting value at character 0",
        },
        {"file": "in.jsonl", "line": 15, "id": None, "reason": "has no id"},
    ]


def test_what_utf_8_cannot_write_comes_back_as_it_went_in() -> None:
    content = b'{"id": "\\ud800 \xe2\x82\xac", "text": "x"}\n'
    answered = answer_chunk(content, chunk_of(content), Letters(), 8)
    assert lines(answered.predictions) == [{"id": "\ud800 €", "ANSWER": "X", "OF": "\ud800 €"}]


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> EncoderPredictor:
    return EncoderPredictor.load(write_model(tmp_path_factory.mktemp("model") / "1"))


def test_the_encoder_answers_a_chunk_as_it_answers_rows_alone(predictor: EncoderPredictor) -> None:
    rows = [row(number) for number in range(100)]
    content = "".join(json.dumps(values) + "\n" for values in rows).encode()
    together = lines(answer_chunk(content, chunk_of(content), predictor, 16).predictions)
    alone = [
        lines(answer_chunk(json.dumps(values).encode(), chunk_of(b""), predictor, 1).predictions) for values in rows
    ]
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
def test_a_row_that_the_encoder_refuses_spoils_no_other(
    predictor: EncoderPredictor, values: dict[str, Any], reason: str
) -> None:
    content = "".join(json.dumps(one) + "\n" for one in (row(0), values, row(2))).encode()
    answered = answer_chunk(content, chunk_of(content), predictor, 16)
    assert [answer["id"] for answer in lines(answered.predictions)] == [0, 2]
    assert lines(answered.bad) == [{"file": "in.jsonl", "line": 2, "id": 1, "reason": reason}]


def test_a_chunk_of_blank_lines_is_answered_with_nothing(predictor: EncoderPredictor) -> None:
    assert answer_chunk(b"\n \r\n", chunk_of(b""), predictor, 16).counts == Counts()


def test_a_compiled_batch_is_the_batch_and_its_filling_counts_as_padding(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "1")
    (folder / "settings.json").write_text(replace(SETTINGS, batch_size=6, pad_to=(16, 40)).to_json(), "utf-8")
    assert find_model(folder).batch_rows == 6
    predictor = EncoderPredictor.load(folder)
    nine, seventeen, three = (Encoded(length, Encoding((1,) * length, (0,) * length)) for length in (9, 17, 3))
    assert predictor.slots([nine] * 4) == 6 * 16
    assert predictor.slots([seventeen, three]) == 6 * 40
