"""Triton's entry point of the last step: turns the compiled model's outputs into the answers of `answers.OUTPUTS`.

Question answering also takes `answer_spans` of the first step and the fields of the answer's segment, upper-cased.
"""

from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from .answers import OUTPUTS, labels, spans
from .row import Refusal, segment_texts
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
        if self._settings.task != "question-answering":
            return labels(self._settings, outputs)
        return spans(self._settings, outputs, _input(request, "answer_spans"), self._contexts(request))

    def _contexts(self, request: Any) -> list[str]:
        """Returns the answer's segment of each row. The first step has read these fields and refused none."""
        fields = self._settings.segments[1]
        columns = [_input(request, field.upper()).ravel().tolist() for field in fields]
        rows = [dict(zip(fields, values, strict=True)) for values in zip(*columns, strict=True)]
        texts = (segment_texts(row, [fields]) for row in rows)
        return [segments[0] for segments in texts if not isinstance(segments, Refusal)]

    def _response(self, answers: dict[str, list[Any]]) -> Any:
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor(name, _column(answers[name], NUMPY[data_type]))
                for name, data_type in OUTPUTS[self._settings.task]
            ]
        )


def _input(request: Any, name: str) -> Any:
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()


def _column(values: list[Any], data_type: type[np.generic]) -> Any:
    """Returns the values as a tensor of shape [rows, 1]."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    return np.array(encoded, data_type).reshape(-1, 1)
