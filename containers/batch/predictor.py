"""The encoder's serving code behind the two calls that the batch makes, on one thread.

It stands beside this package: `containers.encoder` in the checkout, `encoder` in the container.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from .errors import ModelMissing

Values = Mapping[str, Any]
DEFAULT_BATCH_ROWS = 16
NEURON_GRAPHS = "*.neuron.pt"


@dataclass(frozen=True)
class Compiled:
    """What must be known of a model before a worker loads it. `batch_rows`: the compiled batch, or what is fast."""

    batch_rows: int
    neuron: bool


@dataclass(frozen=True)
class Encoded:
    """One row as the model reads it: `length` in tokens, `content` the encoder's own."""

    length: int
    content: Any


class Predictor(Protocol):
    def encode(self, rows: Sequence[Values]) -> list[Encoded | str]:
        """What the model reads of each row, or why it cannot."""

    def answer(self, encoded: Sequence[Encoded], rows: Sequence[Values]) -> list[dict[str, Any]]:
        """One for each row."""

    def slots(self, encoded: Sequence[Encoded]) -> int:
        """How many tokens the model computes for such a batch, padding included."""


def describe(folder: Path) -> Compiled:
    try:
        settings = _encoder("settings").Settings.load(folder / "settings.json")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelMissing(str(folder), f"settings.json cannot be read ({type(error).__name__}: {error})") from None
    return Compiled(settings.batch_size or DEFAULT_BATCH_ROWS, any(folder.glob(NEURON_GRAPHS)))


class EncoderPredictor:
    def __init__(self, predictor: Any) -> None:
        self._predictor = predictor
        self._padding = _encoder("padding")
        self._refusal = _encoder("row").Refusal

    @classmethod
    def load(cls, folder: Path) -> "EncoderPredictor":
        preprocess, engine = _encoder("preprocess"), _encoder("engine")
        try:
            preprocessor = preprocess.Preprocessor.load(folder)
            settings = replace(preprocessor.settings, threads=1)
            return cls(_encoder("predictor").Predictor(preprocessor, engine.load(folder, settings)))
        except Exception as error:  # what a runtime raises for a model it cannot run is its own
            raise ModelMissing(str(folder), f"cannot be loaded ({type(error).__name__}: {error})") from error

    def encode(self, rows: Sequence[Values]) -> list[Encoded | str]:
        return [
            code.message if isinstance(code, self._refusal) else Encoded(len(code), code)
            for code in self._predictor.preprocessor.encode(rows)
        ]

    def answer(self, encoded: Sequence[Encoded], rows: Sequence[Values]) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = self._predictor.answer([code.content for code in encoded], rows)
        return answers

    def slots(self, encoded: Sequence[Encoded]) -> int:
        settings = self._predictor.settings
        length: int = self._padding.padded_length(max(code.length for code in encoded), settings.pad_to)
        rows = len(encoded)
        return length * (rows + (-rows % settings.batch_size if settings.batch_size else 0))


def _encoder(module: str) -> Any:
    parent = __package__.rpartition(".")[0]
    return importlib.import_module(f"{parent}.encoder.{module}".lstrip("."))
