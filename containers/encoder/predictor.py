"""Answers rows in one process: for the batch program, the HTTP server and the build's parity gate.

All rows of a call form one batch, so a caller with rows of mixed lengths makes its own batches.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from .answers import Answer, answer
from .engines import load_engine
from .engines.engine import Engine
from .preprocess import Preprocessor
from .row import Refusal
from .tensors import Encoding, split, tensors, windows


class Predictor:
    def __init__(self, preprocessor: Preprocessor, engine: Engine) -> None:
        self.preprocessor = preprocessor
        self.engine = engine
        self.settings = preprocessor.settings

    @classmethod
    def load(cls, folder: Path) -> "Predictor":
        """Loads a folder with settings.json, tokenizer.json and the compiled model."""
        preprocessor = Preprocessor.load(folder)
        return cls(preprocessor, load_engine.load(folder, preprocessor.settings))

    def predict(self, rows: Sequence[Mapping[str, object]]) -> list[Answer | Refusal]:
        """Returns one answer or refusal for each row, in order."""
        encoded = self.preprocessor.encode(rows)
        good = [(row, code) for row, code in zip(rows, encoded, strict=True) if isinstance(code, Encoding)]
        codes, given = [code for _, code in good], [row for row, _ in good]
        answers = iter(answer(self.settings, self.run(codes), codes, given) if codes else ())
        return [code if isinstance(code, Refusal) else next(answers) for code in encoded]

    def run(self, encodings: Sequence[Encoding]) -> dict[str, NDArray[Any]]:
        """Returns the compiled model's outputs for all windows of all rows, padded to one length."""
        settings = self.settings
        return self.engine.run(tensors(windows(encodings), settings.inputs, settings.pad_to, settings.pad_token_id))


def by_window(outputs: Mapping[str, NDArray[Any]], encodings: Sequence[Encoding]) -> list[dict[str, NDArray[Any]]]:
    """Returns the outputs of `run` for each window of each row; those per token are cut to its length."""
    apart = split(outputs, [(1, len(window)) for window in windows(encodings)])
    return [{name: output[0] for name, output in own.items()} for own in apart]
