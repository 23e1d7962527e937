"""Answers the rows of one chunk: its text becomes the contents of its two files, and counts. Pure but for the model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .chunks import BadRow, Chunk, Row, read
from .predictor import Encoded, Predictor

STRICT = json.JSONEncoder(allow_nan=False)


@dataclass(frozen=True)
class Counts:
    """Rows answered and refused; the tokens of the rows that the model was given, and of its batches, with padding."""

    answered: int = 0
    bad: int = 0
    tokens: int = 0
    slots: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.answered + other.answered, self.bad + other.bad, self.tokens + other.tokens, self.slots + other.slots
        )

    def document(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class Answered:
    """`predictions` and `bad` are JSON lines in the order of the input."""

    predictions: bytes
    bad: bytes
    counts: Counts


def answer_chunk(text: bytes, chunk: Chunk, predictor: Predictor, batch_rows: int) -> Answered:
    read_rows = list(read(text, chunk.first_line))
    bad = [row for row in read_rows if isinstance(row, BadRow)]
    rows = [row for row in read_rows if isinstance(row, Row)]
    good: list[tuple[Row, Encoded]] = []
    for row, encoded in zip(rows, predictor.encode([row.values for row in rows]), strict=True):
        if isinstance(encoded, str):
            bad.append(BadRow(row.line, row.id, encoded))
        else:
            good.append((row, encoded))
    answers, slots = _answer([row for row, _ in good], [encoded for _, encoded in good], predictor, batch_rows)
    tokens = sum(encoded.length for _, encoded in good)
    predictions: list[str] = []
    for (row, _), answer in zip(good, answers, strict=True):
        try:
            predictions.append(_line({"id": row.id, **answer}))
        except ValueError:  # JSON has no NaN and no infinity
            bad.append(BadRow(row.line, row.id, "has an answer that is not finite"))
    bad_lines = [_line(_bad_document(chunk.file, row)) for row in sorted(bad, key=lambda row: row.line)]
    return Answered(
        predictions="".join(predictions).encode(),
        bad="".join(bad_lines).encode(),
        counts=Counts(answered=len(predictions), bad=len(bad), tokens=tokens, slots=slots),
    )


def _answer(
    rows: Sequence[Row], encoded: Sequence[Encoded], predictor: Predictor, batch_rows: int
) -> tuple[list[Mapping[str, Any]], int]:
    """Returns the answers in the order of `rows`, however they were batched, and the slots of all batches."""
    answers: dict[int, Mapping[str, Any]] = {}
    slots = 0
    for places in by_length([code.length for code in encoded], batch_rows):
        batch = [encoded[at] for at in places]
        slots += predictor.slots(batch)
        answers.update(zip(places, predictor.answer(batch, [rows[at].values for at in places]), strict=True))
    return [answers[at] for at in range(len(rows))], slots


def by_length(lengths: Sequence[int], batch_rows: int) -> list[list[int]]:
    """Groups rows by length, shortest first, at most `batch_rows` at once: a batch is padded to its longest row."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[start : start + batch_rows] for start in range(0, len(order), batch_rows)]


def _bad_document(file: str, row: BadRow) -> dict[str, Any]:
    return {"file": file, "line": row.line, "id": row.id, "reason": row.reason}


def _line(document: Mapping[str, Any]) -> str:
    return STRICT.encode(document) + "\n"
