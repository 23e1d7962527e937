"""Answers the rows of one chunk: turns its text into the contents of its two files, and counts.

Reading and tokenising is one step and answering another, so that the device runs one chunk while the next is read.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..encoder.tensors import Encoding
from .chunks import BadRow, Chunk, InputRow, read
from .predictor import BatchPredictor, length

STRICT = json.JSONEncoder(allow_nan=False)


@dataclass(frozen=True)
class ChunkCounts:
    """Rows answered and refused, tokens of the rows that ran, and tokens of their batches with padding."""

    answered: int = 0
    bad: int = 0
    tokens: int = 0
    slots: int = 0

    def __add__(self, other: "ChunkCounts") -> "ChunkCounts":
        return ChunkCounts(
            self.answered + other.answered, self.bad + other.bad, self.tokens + other.tokens, self.slots + other.slots
        )


@dataclass(frozen=True)
class RunningChunk:
    """A chunk on the device. `outputs` yields those of each batch as soon as it has run."""

    chunk: Chunk
    batches: "list[list[tuple[InputRow, Encoding]]]"  # the good rows by length
    outputs: Iterator[Any]
    bad: list[BadRow]


@dataclass(frozen=True)
class ChunkAnswers:
    """`predictions` and `bad` are JSON lines in the order of the input."""

    chunk: Chunk
    predictions: bytes
    bad: bytes
    counts: ChunkCounts


def start(text: bytes, chunk: Chunk, predictor: BatchPredictor, batch_rows: int) -> RunningChunk:
    """Reads and tokenises the rows, and queues them on the device in batches."""
    lines = list(read(text, chunk.first_line))
    bad = [line for line in lines if isinstance(line, BadRow)]
    rows = [line for line in lines if isinstance(line, InputRow)]
    good: list[tuple[InputRow, Encoding]] = []
    for row, encoded in zip(rows, predictor.encode([row.values for row in rows]), strict=True):
        if isinstance(encoded, str):
            bad.append(BadRow(row.line, row.id, encoded))
        else:
            good.append((row, encoded))
    places = by_length([length(code) for _, code in good], batch_rows)
    batches = [[good[place] for place in batch] for batch in places]
    return RunningChunk(chunk, batches, predictor.run([[code for _, code in batch] for batch in batches]), bad)


def finish(running: RunningChunk, predictor: BatchPredictor) -> ChunkAnswers:
    """Waits for the outputs and puts the answers in the order of the input."""
    bad = list(running.bad)
    predictions: dict[int, str] = {}
    tokens = slots = 0
    for batch, outputs in zip(running.batches, running.outputs, strict=True):
        codes = [code for _, code in batch]
        tokens += sum(map(length, codes))
        slots += predictor.slots(codes)
        answers = predictor.answer(outputs, codes, [row.values for row, _ in batch])
        for (row, _), answer in zip(batch, answers, strict=True):
            try:
                predictions[row.line] = _line({"id": row.id, **answer})
            except ValueError:  # JSON has no NaN and no infinity
                bad.append(BadRow(row.line, row.id, "has an answer that is not finite"))
    bad_lines = [
        _line({"file": running.chunk.file, "line": row.line, "id": row.id, "reason": row.reason})
        for row in sorted(bad, key=lambda row: row.line)
    ]
    return ChunkAnswers(
        chunk=running.chunk,
        predictions="".join(predictions[line] for line in sorted(predictions)).encode(),
        bad="".join(bad_lines).encode(),
        counts=ChunkCounts(len(predictions), len(bad), tokens, slots),
    )


def by_length(lengths: Sequence[int], batch_rows: int) -> list[list[int]]:
    """Groups rows by length, shortest first, because a batch is padded to its longest row."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[start : start + batch_rows] for start in range(0, len(order), batch_rows)]


def _line(document: Mapping[str, Any]) -> str:
    return STRICT.encode(document) + "\n"
