"""Answers the rows of one chunk: its text becomes the contents of its two files, and counts. Pure but for the model.

It is done in two steps, so that a chunk can be read and tokenised while the device has the one before.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
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
class Batch:
    rows: list[Row]
    encoded: list[Encoded]


@dataclass(frozen=True)
class Running:
    """A chunk that the device has. `batches` hold its good rows by length, `bad` those that it never gets.

    `outputs` yields those of each batch, as soon as it has run.
    """

    chunk: Chunk
    batches: list[Batch]
    outputs: Iterator[Any]
    bad: list[BadRow]


@dataclass(frozen=True)
class Answered:
    """`predictions` and `bad` are JSON lines in the order of the input."""

    chunk: Chunk
    predictions: bytes
    bad: bytes
    counts: Counts


def start(text: bytes, chunk: Chunk, predictor: Predictor, batch_rows: int) -> Running:
    """Reads and tokenises the rows, and hands them to the device in batches."""
    read_rows = list(read(text, chunk.first_line))
    bad = [row for row in read_rows if isinstance(row, BadRow)]
    rows = [row for row in read_rows if isinstance(row, Row)]
    good: list[tuple[Row, Encoded]] = []
    for row, encoded in zip(rows, predictor.encode([row.values for row in rows]), strict=True):
        if isinstance(encoded, str):
            bad.append(BadRow(row.line, row.id, encoded))
        else:
            good.append((row, encoded))
    batches = [
        Batch([good[at][0] for at in places], [good[at][1] for at in places])
        for places in by_length([encoded.length for _, encoded in good], batch_rows)
    ]
    return Running(chunk, batches, predictor.run([batch.encoded for batch in batches]), bad)


def finish(running: Running, predictor: Predictor) -> Answered:
    """Waits for the outputs and puts the answers in the order of the input, however they were batched."""
    bad = list(running.bad)
    predictions: dict[int, str] = {}
    for batch, outputs in zip(running.batches, running.outputs, strict=True):
        answers = predictor.answer(outputs, batch.encoded, [row.values for row in batch.rows])
        for row, answer in zip(batch.rows, answers, strict=True):
            try:
                predictions[row.line] = _line({"id": row.id, **answer})
            except ValueError:  # JSON has no NaN and no infinity
                bad.append(BadRow(row.line, row.id, "has an answer that is not finite"))
    bad_lines = [_line(_bad_document(running.chunk.file, row)) for row in sorted(bad, key=lambda row: row.line)]
    return Answered(
        chunk=running.chunk,
        predictions="".join(predictions[line] for line in sorted(predictions)).encode(),
        bad="".join(bad_lines).encode(),
        counts=Counts(
            answered=len(predictions),
            bad=len(bad),
            tokens=sum(encoded.length for batch in running.batches for encoded in batch.encoded),
            slots=sum(predictor.slots(batch.encoded) for batch in running.batches),
        ),
    )


def by_length(lengths: Sequence[int], batch_rows: int) -> list[list[int]]:
    """Groups rows by length, shortest first, at most `batch_rows` at once: a batch is padded to its longest row."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[start : start + batch_rows] for start in range(0, len(order), batch_rows)]


def _bad_document(file: str, row: BadRow) -> dict[str, Any]:
    return {"file": file, "line": row.line, "id": row.id, "reason": row.reason}


def _line(document: Mapping[str, Any]) -> str:
    return STRICT.encode(document) + "\n"
