"""Triton's entry point of the first step: turns text fields into the tensors of the compiled model.

Inputs: every field, upper-cased, TYPE_STRING [1]. Outputs: `settings.inputs`; question answering adds `answer_spans`,
INT64 [length, 2]: the characters of every token, -1 where no answer can begin or end.
"""

from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from .preprocess import Preprocessor
from .row import Refusal
from .tensors import Encoding, answer_spans, tensors


class TritonPythonModel:
    """One model instance; Triton calls `initialize` once and `execute` with every dynamic batch."""

    def initialize(self, args: dict[str, str]) -> None:
        self._preprocessor = Preprocessor.load(Path(args["model_repository"], args["model_version"]))

    def execute(self, requests: list[Any]) -> list[Any]:
        rows = [self._rows(request) for request in requests]
        encoded = iter(self._preprocessor.encode([row for request in rows for row in request]))
        return [self._response([next(encoded) for _ in request]) for request in rows]

    def _rows(self, request: Any) -> list[dict[str, bytes]]:
        fields = self._preprocessor.settings.fields
        columns = [
            pb_utils.get_input_tensor_by_name(request, field.upper()).as_numpy().ravel().tolist() for field in fields
        ]
        return [dict(zip(fields, values, strict=True)) for values in zip(*columns, strict=True)]

    def _response(self, encoded: list[Encoding | Refusal]) -> Any:
        """Answers a request, or refuses it as a whole for a bad row: Triton has one error per request, not per row."""
        encodings = [row for row in encoded if isinstance(row, Encoding)]
        if len(encodings) < len(encoded):
            # INVALID_ARG becomes HTTP 400, so that the caller's mistake does not count as a failure of the model.
            error = pb_utils.TritonError(refusal(encoded), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        settings = self._preprocessor.settings
        made: dict[str, Any] = dict(tensors(encodings, settings.inputs, settings.pad_to, settings.pad_token_id))
        if settings.task == "question-answering":
            made["answer_spans"] = answer_spans(encodings, made["input_ids"].shape[1])
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, np.ascontiguousarray(tensor)) for name, tensor in made.items()]
        )


def refusal(encoded: list[Encoding | Refusal]) -> str:
    """Returns the sentences that name the bad rows."""
    reasons = [f"Row {index} {row.message}." for index, row in enumerate(encoded) if isinstance(row, Refusal)]
    return " ".join([*reasons, "No row of this request was answered."] if len(encoded) > 1 else reasons)
