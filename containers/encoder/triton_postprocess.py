"""Triton's entry point of the last step: turns the compiled model's outputs into the answers of `answers.OUTPUTS`.

Where answers are pieces of the text it also takes `token_spans` and `segment` of the first step. Inputs are windows,
and an empty `segment` says that a window belongs to the row before; answers are rows.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from .answers import OUTPUTS, labels, pieces
from .settings import Settings

NUMPY = {"TYPE_STRING": np.object_, "TYPE_FP32": np.float32, "TYPE_INT64": np.int64}


class TritonPythonModel:
    """One model instance; Triton calls `initialize` once and `execute` with every dynamic batch."""

    def initialize(self, args: dict[str, str]) -> None:
        self._settings = Settings.load(Path(args["model_repository"], args["model_version"], "settings.json"))

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._response(self._answers(request)) for request in requests]

    def _answers(self, request: Any) -> dict[str, list[Any]]:
        outputs = {name: _input(request, name) for name in self._settings.graph_outputs}
        if not self._settings.per_token:
            return labels(self._settings, outputs)
        segments = [text.decode() for text in _input(request, "segment").ravel().tolist()]
        first = [window for window, text in enumerate(segments) if text]
        counts = [end - start for start, end in pairwise([*first, len(segments)])]
        texts = [segments[window] for window in first]
        return pieces(self._settings, outputs, _input(request, "token_spans"), texts, counts)

    def _response(self, answers: dict[str, list[Any]]) -> Any:
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor(name, _column(answers[name], NUMPY[data_type]))
                for name, data_type in OUTPUTS[self._settings.kind]
            ]
        )


def _input(request: Any, name: str) -> Any:
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()


def _column(values: list[Any], data_type: type[np.generic]) -> Any:
    """Returns the values as a tensor of shape [rows, 1], or [rows, numbers] where each is a list of them."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    return np.array(encoded, data_type).reshape(len(values), -1)
