"""Compares a model's outputs on an Inferentia chip, a file of `containers.batch.record`, with the original.

The machine with the chip has no transformers, and the machine with transformers has no chip.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from containers.batch.archive import model_sha256
from containers.encoder.goldens import RecordedOutputs
from containers.encoder.predictor import Predictor
from containers.encoder.preprocess import Preprocessor
from containers.encoder.settings import Settings
from containers.encoder.tensors import Encoding, windows
from model_build.encoder import verify
from model_build.parity import Compare
from model_build.plan import BuildPlan
from model_build.progress import Progress
from workloads import UsageError
from workloads.errors import InvalidDocument


class RecordedModel(Predictor):
    """A `Predictor` that looks up each row's recorded outputs by its tokens."""

    def __init__(self, preprocessor: Preprocessor, recorded: RecordedOutputs, file: Path) -> None:
        self.preprocessor = preprocessor
        self.settings = preprocessor.settings
        self._file = file
        self._outputs = {(each.token_ids, each.type_ids): each.outputs for each in recorded.rows}

    def run(self, encodings: Sequence[Encoding]) -> dict[str, NDArray[Any]]:
        """Raises `UsageError` for a row that was not recorded."""
        read = windows(encodings)
        longest = max(map(len, read))
        rows = [self._row(encoding) for encoding in read]
        pairs = list(zip(rows, read, strict=True))
        return {
            name: np.stack([_array(name, row[name], len(code), longest, self.settings) for row, code in pairs])
            for name in self.settings.graph_outputs
        }

    def _row(self, encoding: Encoding) -> Mapping[str, list[float]]:
        try:
            return self._outputs[encoding.token_ids, encoding.type_ids]
        except KeyError:
            raise UsageError(
                f"{self._file}: lacks rows of the current evaluation.jsonl. Record them again on the target's "
                "hardware with `python -m containers.batch.record`."
            ) from None


def comparer(plan: BuildPlan, made: Path, file: Path, progress: Progress) -> Compare:
    """Runs the original on every example, to compare it with the outputs in `file`.

    `made` is the unpacked archive. Raises `UsageError` for outputs of another one, `InvalidDocument` for no outputs.
    """
    recorded = read(file)
    if recorded.model_sha256 != model_sha256(made):
        raise UsageError(
            f"{file}: was recorded with another build of {plan.workload.name} for {plan.variant_name} than "
            f"{plan.archive}. Record it again with that archive."
        )
    return verify.comparison(
        plan, lambda folder: RecordedModel(Preprocessor.load(folder), recorded, file), verify.ORIGINAL_BATCH, progress
    )


def read(file: Path) -> RecordedOutputs:
    try:
        return RecordedOutputs.from_json(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError(
            f"--outputs {file}: cannot be read: {error.strerror}. Name the file that containers.batch.record wrote."
        ) from None
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidDocument(file, [f"is not a file of containers.batch.record ({error})."]) from None


def _array(name: str, numbers: list[float], length: int, longest: int, settings: Settings) -> NDArray[np.float32]:
    """Returns a row's output in the graph's shape; one with numbers for each token is padded to `longest` tokens."""
    if name == "score":
        return np.array(numbers[0], np.float32)
    values = np.array(numbers, np.float32)
    if not settings.per_token:
        return values
    by_token = values.reshape(length, -1) if settings.task == "token-classification" else values
    return np.pad(by_token, [(0, longest - length), *[(0, 0)] * (by_token.ndim - 1)])
