"""Triton's entry point: turns inference requests into rows, and answers or refusals into inference responses."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from .generator import Refusal, TextGenerator
from .settings import Settings


class TritonPythonModel:
    """One model instance; Triton calls `initialize` once and `execute` with every dynamic batch."""

    def initialize(self, args: dict[str, str]) -> None:
        folder = Path(args["model_repository"], args["model_version"])
        settings, device = Settings.from_model_config(args["model_config"]), int(args["model_instance_device_id"])
        self._generator = TextGenerator.load(folder, settings, device)

    def execute(self, requests: list[Any]) -> list[Any]:
        parameters = [json.loads(request.parameters() or "{}") for request in requests]
        answers = self._generator.answer([_rows(request) for request in requests], parameters)
        return [_response(answer, self._generator.settings.answer) for answer in answers]


def _rows(request: Any) -> list[bytes]:
    rows: list[bytes] = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy().ravel().tolist()
    return rows


def _response(answer: list[bytes] | Refusal, name: str) -> Any:
    if isinstance(answer, Refusal):
        # INVALID_ARG becomes HTTP 400, so that the caller's mistake does not count as a failure of the model.
        error = pb_utils.TritonError(answer.message, pb_utils.TritonError.INVALID_ARG)
        return pb_utils.InferenceResponse(error=error)
    texts = np.array(answer, np.object_).reshape(-1, 1)
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, texts)])
