"""Runs the encoder's serving code for the batch: turns a chunk's text into the contents of its two files, and counts.

Reading and tokenising is one step and answering another, so that the device runs one chunk while the next is read.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, replace
from functools import partial
from math import inf
from operator import add
from pathlib import Path
from typing import Any, TypeAlias

from ..encoder import goldens
from ..encoder.answers import answer
from ..encoder.engines import load_engine
from ..encoder.predictor import Predictor
from ..encoder.preprocess import Preprocessor
from ..encoder.settings import Settings
from ..encoder.tensors import Encoding, padded_length, windows
from ..grouping import group_by_length
from .archive import not_a_model
from .source import BadRow, Chunk, InputRow, read

DEFAULT_BATCH_ROWS = 64
Batch: TypeAlias = list[tuple[InputRow, Encoding]]
STRICT = json.JSONEncoder(allow_nan=False)


@dataclass(frozen=True)
class ModelFolder:
    """A model on disk. `batch_rows` is the compiled batch size, or the most rows of a launch if the model takes any."""

    preprocessing: Path
    graphs: Path
    batch_rows: int

    @property
    def neuron(self) -> bool:
        return any(self.graphs.glob(load_engine.NEURON_GRAPHS))


def find_model(folder: Path) -> ModelFolder:
    """Finds the parts in one folder, or in the version folders of a Triton repository. Raises `Unavailable`."""
    tokenise, graphs = (next(folder.glob(f"*_{step}/1"), folder) for step in ("tokenise", "model"))
    try:
        settings = Settings.load(tokenise / "settings.json")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise not_a_model(str(folder), f"settings.json cannot be read ({type(error).__name__}: {error})") from None
    return ModelFolder(tokenise, graphs, settings.batch_size or DEFAULT_BATCH_ROWS)


class BatchPredictor:
    """Gives the device `at_once` batches at a time. One thread may start a chunk while another finishes one."""

    def __init__(self, encoder: Predictor, at_once: int) -> None:
        self._encoder = encoder
        self._threads = ThreadPoolExecutor(at_once, "device")

    @classmethod
    def load(cls, folder: Path) -> "BatchPredictor":
        """Raises `Unavailable` if the model cannot be run, or differs from its original on a NeuronCore.

        Each NeuronCore has a batch and one more waits. Source: NeuronPerf's guide, throughput with two threads.
        """
        model = find_model(folder)
        try:
            preprocessor = Preprocessor.load(model.preprocessing)
            settings = replace(preprocessor.settings, threads=1)
            engine = load_engine.load(model.graphs, settings)
        except Exception as error:  # each runtime has its own errors for a model that it cannot run
            raise not_a_model(str(folder), f"cannot be loaded ({type(error).__name__}: {error})") from error
        goldens.check(engine, settings, model.graphs)
        return cls(Predictor(preprocessor, engine), int(os.environ[goldens.COUNT]) + 1 if model.neuron else 1)

    def start(self, text: bytes, chunk: Chunk, batch_rows: int) -> "Callable[[], ChunkAnswers]":
        """Queues a chunk's rows on the device in batches. The call that it returns waits for the answers."""
        lines = list(read(text, chunk.first_line))
        bad = [line for line in lines if isinstance(line, BadRow)]
        rows = [line for line in lines if isinstance(line, InputRow)]
        good: Batch = []
        for row, code in zip(rows, self._encoder.preprocessor.encode([row.values for row in rows]), strict=True):
            if isinstance(code, Encoding):
                good.append((row, code))
            else:
                bad.append(BadRow(row.line, row.id, code.message))
        lengths = [max(map(len, windows([code]))) for _, code in good]
        batches = [[good[row] for row in rows] for rows in self._groups(lengths, batch_rows)]
        outputs = self._threads.map(self._encoder.run, [[code for _, code in batch] for batch in batches])
        return partial(self._finish, chunk, batches, outputs, bad)

    def _groups(self, lengths: Sequence[int], batch_rows: int) -> list[list[int]]:
        """Returns the rows of each batch. A compiled batch is full in any case, so it takes the rows in their order."""
        settings = self._encoder.settings
        if settings.batch_size:
            return group_by_length(lengths, inf, most_rows=batch_rows, most_tokens=batch_rows * max(lengths, default=0))
        return group_by_length(lengths, settings.launch_tokens, most_rows=batch_rows)

    def _finish(
        self, chunk: Chunk, batches: Sequence[Batch], batch_outputs: Iterator[Any], bad: list[BadRow]
    ) -> "ChunkAnswers":
        """Waits for the outputs, and puts the answers in the order of the input."""
        predictions: dict[int, str] = {}
        tokens = slots = 0
        for batch, outputs in zip(batches, batch_outputs, strict=True):
            codes = [code for _, code in batch]
            tokens += sum(map(_tokens, codes))
            slots += self._slots(codes)
            answers = answer(self._encoder.settings, outputs, codes, [row.values for row, _ in batch])
            for (row, _), own in zip(batch, answers, strict=True):
                try:
                    predictions[row.line] = _line({"id": row.id, **own})
                except ValueError:  # JSON has no NaN and no infinity
                    bad.append(BadRow(row.line, row.id, "has an answer that is not finite"))
        bad_lines = [
            _line({"file": chunk.file, "line": row.line, "id": row.id, "reason": row.reason})
            for row in sorted(bad, key=lambda row: row.line)
        ]
        return ChunkAnswers(
            chunk=chunk,
            predictions="".join(predictions[line] for line in sorted(predictions)).encode(),
            bad="".join(bad_lines).encode(),
            counts=ChunkCounts(len(predictions), len(bad), tokens, slots),
        )

    def _slots(self, codes: Sequence[Encoding]) -> int:
        settings, read = self._encoder.settings, windows(codes)
        fill = -len(read) % settings.batch_size if settings.batch_size else 0
        return padded_length(max(map(len, read)), settings.pad_to) * (len(read) + fill)


def _tokens(encoding: Encoding) -> int:
    return sum(map(len, windows([encoding])))


@dataclass(frozen=True)
class ChunkCounts:
    """Rows answered and refused, tokens of the rows that ran, and tokens of their batches with padding."""

    answered: int = 0
    bad: int = 0
    tokens: int = 0
    slots: int = 0

    def __add__(self, other: "ChunkCounts") -> "ChunkCounts":
        return ChunkCounts(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class ChunkAnswers:
    """`predictions` and `bad` are JSON lines in the order of the input."""

    chunk: Chunk
    predictions: bytes
    bad: bytes
    counts: ChunkCounts


def _line(document: Mapping[str, Any]) -> str:
    return STRICT.encode(document) + "\n"
