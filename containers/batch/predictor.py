"""Runs the encoder's serving code on one thread for the batch, and finds its parts in a model's folder."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ..encoder import goldens, load_engine
from ..encoder.answers import Outputs, answer
from ..encoder.predictor import Predictor as Encoder
from ..encoder.preprocess import Preprocessor
from ..encoder.settings import Settings
from ..encoder.tensors import Encoding, padded_length, windows
from .archive import not_a_model

Values = Mapping[str, Any]
DEFAULT_BATCH_ROWS = 16


@dataclass(frozen=True)
class Compiled:
    """A model on disk. `batch_rows` is the compiled batch size, or a fast one where the model takes any."""

    preprocessing: Path
    graphs: Path
    batch_rows: int

    @property
    def neuron(self) -> bool:
        return any(self.graphs.glob(load_engine.NEURON_GRAPHS))


def find_model(folder: Path) -> Compiled:
    """Finds the parts in one folder, or in the version folders of a Triton repository. Raises `Unavailable`."""
    tokenise, graphs = (next(folder.glob(f"*_{step}/1"), folder) for step in ("tokenise", "model"))
    try:
        settings = Settings.load(tokenise / "settings.json")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise not_a_model(str(folder), f"settings.json cannot be read ({type(error).__name__}: {error})") from None
    return Compiled(tokenise, graphs, settings.batch_size or DEFAULT_BATCH_ROWS)


@dataclass(frozen=True)
class Encoded:
    """One row as the model reads it: `length` in tokens, and `content`, which only the predictor understands."""

    length: int
    content: Any


class Predictor(Protocol):
    """The steps that rows go through. One thread encodes while another makes answers."""

    def encode(self, rows: Sequence[Values]) -> list[Encoded | str]:
        """Returns each row as the model reads it, or the reason why it cannot."""

    def run(self, batches: Sequence[Sequence[Encoded]]) -> Iterator[Any]:
        """Hands all batches to the device, behind those that it has. Yields the outputs of each, in order."""

    def answer(self, outputs: Any, encoded: Sequence[Encoded], rows: Sequence[Values]) -> Sequence[Mapping[str, Any]]:
        """Returns one answer for each row of a batch."""

    def slots(self, encoded: Sequence[Encoded]) -> int:
        """Returns the number of tokens the model computes for such a batch, padding included."""


class EncoderPredictor:
    """Gives the device `at_once` batches at a time, so that it never waits for a thread between two."""

    def __init__(self, encoder: Encoder, at_once: int) -> None:
        self._encoder = encoder
        self._threads = ThreadPoolExecutor(at_once, "device")

    @classmethod
    def load(cls, folder: Path) -> "EncoderPredictor":
        """Raises `Unavailable` for a model that cannot be run, or that is not its original's equal on a NeuronCore.

        A pipeline over several NeuronCores has a batch in each of them, and one more waits. Source: NeuronPerf's
        benchmark guide, which has a NeuronCore's highest throughput with two threads.
        """
        model = find_model(folder)
        try:
            preprocessor = Preprocessor.load(model.preprocessing)
            settings = replace(preprocessor.settings, threads=1)
            engine = load_engine.load(model.graphs, settings)
        except Exception as error:  # each runtime has its own errors for a model that it cannot run
            raise not_a_model(str(folder), f"cannot be loaded ({type(error).__name__}: {error})") from error
        goldens.check(engine, settings, model.graphs)
        return cls(Encoder(preprocessor, engine), int(os.environ[goldens.COUNT]) + 1 if model.neuron else 1)

    def encode(self, rows: Sequence[Values]) -> list[Encoded | str]:
        return [
            Encoded(sum(map(len, windows([code]))), code) if isinstance(code, Encoding) else code.message
            for code in self._encoder.preprocessor.encode(rows)
        ]

    def run(self, batches: Sequence[Sequence[Encoded]]) -> Iterator[Outputs]:
        return self._threads.map(self._encoder.run, ([code.content for code in batch] for batch in batches))

    def answer(
        self, outputs: Outputs, encoded: Sequence[Encoded], rows: Sequence[Values]
    ) -> Sequence[Mapping[str, Any]]:
        return answer(self._encoder.settings, outputs, [code.content for code in encoded], rows)

    def slots(self, encoded: Sequence[Encoded]) -> int:
        settings, read = self._encoder.settings, windows(code.content for code in encoded)
        fill = -len(read) % settings.batch_size if settings.batch_size else 0
        return padded_length(max(map(len, read)), settings.pad_to) * (len(read) + fill)
