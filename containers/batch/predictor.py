"""Runs the encoder's serving code for the batch, and finds its parts in a model's folder."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..encoder import goldens, load_engine
from ..encoder.answers import Outputs, answer
from ..encoder.predictor import Predictor
from ..encoder.preprocess import Preprocessor
from ..encoder.settings import Settings
from ..encoder.tensors import Encoding, padded_length, windows
from .archive import not_a_model

DEFAULT_BATCH_ROWS = 16


@dataclass(frozen=True)
class ModelFolder:
    """A model on disk. `batch_rows` is the compiled batch size, or a fast one if the model takes any."""

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


def length(encoding: Encoding) -> int:
    """Returns the tokens of a row in all its windows."""
    return sum(map(len, windows([encoding])))


class BatchPredictor:
    """Gives the device `at_once` batches at a time, so that it does not idle between two.

    One thread may encode while another makes answers.
    """

    def __init__(self, encoder: Predictor, at_once: int) -> None:
        self._encoder = encoder
        self._threads = ThreadPoolExecutor(at_once, "device")

    @classmethod
    def load(cls, folder: Path) -> "BatchPredictor":
        """Raises `Unavailable` if the model cannot be run, or differs from its original on a NeuronCore.

        A pipeline over several NeuronCores has a batch in each of them, and one more waits. Source: NeuronPerf's
        benchmark guide, where a NeuronCore's throughput is highest with two threads.
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

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> list[Encoding | str]:
        """Returns each tokenised row, or the reason why the model cannot read it."""
        encoded = self._encoder.preprocessor.encode(rows)
        return [code if isinstance(code, Encoding) else code.message for code in encoded]

    def run(self, batches: Sequence[Sequence[Encoding]]) -> Iterator[Outputs]:
        """Queues all batches on the device. Yields the outputs of each, in order."""
        return self._threads.map(self._encoder.run, batches)

    def answer(
        self, outputs: Outputs, codes: Sequence[Encoding], rows: Sequence[Mapping[str, Any]]
    ) -> Sequence[Mapping[str, Any]]:
        """Returns one answer for each row of a batch."""
        return answer(self._encoder.settings, outputs, codes, rows)

    def slots(self, codes: Sequence[Encoding]) -> int:
        """Returns the tokens that the model computes for a batch, with padding."""
        settings, read = self._encoder.settings, windows(codes)
        fill = -len(read) % settings.batch_size if settings.batch_size else 0
        return padded_length(max(map(len, read)), settings.pad_to) * (len(read) + fill)
