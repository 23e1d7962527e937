"""One chunk's text in, its two files and its counts out. Pure, given the predictor."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .batches import by_length
from .chunks import Chunk
from .predictor import Encoded, Predictor
from .rows import BadRow, Row, read


@dataclass(frozen=True)
class Counts:
    """Rows answered and refused; tokens of the answered, and `slots` that the model computed for them."""

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
    return Answered(
        predictions=_lines([{"id": row.id, **answer} for (row, _), answer in zip(good, answers, strict=True)]),
        bad=_lines([_bad_document(chunk.file, row) for row in sorted(bad, key=lambda row: row.line)]),
        counts=Counts(answered=len(good), bad=len(bad), tokens=tokens, slots=slots),
    )


def _answer(
    rows: Sequence[Row], encoded: Sequence[Encoded], predictor: Predictor, batch_rows: int
) -> tuple[list[Mapping[str, Any]], int]:
    """Answers in the order of `rows`, however they were batched; and the slots of all batches."""
    answers: dict[int, Mapping[str, Any]] = {}
    slots = 0
    for places in by_length([code.length for code in encoded], batch_rows):
        batch = [encoded[at] for at in places]
        slots += predictor.slots(batch)
        answers.update(zip(places, predictor.answer(batch, [rows[at].values for at in places]), strict=True))
    return [answers[at] for at in range(len(rows))], slots


def _bad_document(file: str, row: BadRow) -> dict[str, Any]:
    return {"file": file, "line": row.line, "id": row.id, "reason": row.reason}


def _lines(documents: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(document) + "\n" for document in documents).encode()
