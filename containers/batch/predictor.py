"""The encoder's serving code behind the calls that the batch makes, on one thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ..encoder import engine
from ..encoder.padding import padded_length
from ..encoder.predictor import Predictor as Encoder
from ..encoder.preprocess import Encoding, Preprocessor
from ..encoder.settings import Settings
from .errors import ModelMissing

Values = Mapping[str, Any]
DEFAULT_BATCH_ROWS = 16


@dataclass(frozen=True)
class Compiled:
    """A model as it lies on disk. `batch_rows`: the compiled batch, or what is fast."""

    preprocessing: Path
    graphs: Path
    batch_rows: int

    @property
    def neuron(self) -> bool:
        return any(self.graphs.glob(engine.NEURON_GRAPHS))


def find_model(folder: Path) -> Compiled:
    """In one folder all together, or in a Triton repository's version folders, as the build lays either out."""
    tokenise, graphs = (next(folder.glob(f"*_{step}/1"), folder) for step in ("tokenise", "model"))
    try:
        settings = Settings.load(tokenise / "settings.json")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelMissing(str(folder), f"settings.json cannot be read ({type(error).__name__}: {error})") from None
    return Compiled(tokenise, graphs, settings.batch_size or DEFAULT_BATCH_ROWS)


@dataclass(frozen=True)
class Encoded:
    """One row as the model reads it: `length` in tokens, `content` the encoder's own."""

    length: int
    content: Any


class Predictor(Protocol):
    def encode(self, rows: Sequence[Values]) -> list[Encoded | str]:
        """What the model reads of each row, or why it cannot."""

    def answer(self, encoded: Sequence[Encoded], rows: Sequence[Values]) -> Sequence[Mapping[str, Any]]:
        """One for each row."""

    def slots(self, encoded: Sequence[Encoded]) -> int:
        """How many tokens the model computes for such a batch, padding included."""


class EncoderPredictor:
    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    @classmethod
    def load(cls, folder: Path) -> "EncoderPredictor":
        model = find_model(folder)
        try:
            preprocessor = Preprocessor.load(model.preprocessing)
            settings = replace(preprocessor.settings, threads=1)
            return cls(Encoder(preprocessor, engine.load(model.graphs, settings)))
        except Exception as error:  # what a runtime raises for a model that it cannot run is its own
            raise ModelMissing(str(folder), f"cannot be loaded ({type(error).__name__}: {error})") from error

    def encode(self, rows: Sequence[Values]) -> list[Encoded | str]:
        return [
            Encoded(len(code), code) if isinstance(code, Encoding) else code.message
            for code in self._encoder.preprocessor.encode(rows)
        ]

    def answer(self, encoded: Sequence[Encoded], rows: Sequence[Values]) -> Sequence[Mapping[str, Any]]:
        return self._encoder.answer([code.content for code in encoded], rows)

    def slots(self, encoded: Sequence[Encoded]) -> int:
        settings = self._encoder.settings
        fill = -len(encoded) % settings.batch_size if settings.batch_size else 0
        return padded_length(max(code.length for code in encoded), settings.pad_to) * (len(encoded) + fill)
