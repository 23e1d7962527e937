"""Triton's entry point of the first step: turns text fields into the tensors of the compiled model.

Inputs: every field, upper-cased, TYPE_STRING [1]. Outputs: `settings.inputs`. Where answers are pieces of the text it
adds `token_spans`, INT64 [length, 2 or 3] (`Encoding.spans`), and `segment`, TYPE_STRING [1]: the text of the answer's
segment. With `settings.stride` a row may become several of the outputs, one for each window; `segment` is then empty
in all but its first.
"""

from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from .preprocess import Preprocessor
from .row import Refusal
from .tensors import Encoding, tensors, token_spans, windows


class TritonPythonModel:
    """One model instance; Triton calls `initialize` once and `execute` with every dynamic batch."""

    def initialize(self, args: dict[str, str]) -> None:
        self._preprocessor = Preprocessor.load(Path(args["model_repository"], args["model_version"]))

    def execute(self, requests: list[Any]) -> list[Any]:
        rows = [self._rows(request) for request in requests]
        encoded = iter(self._preprocessor.encode([row for request in rows for row in request]))
        return [self._response(request, [next(encoded) for _ in request]) for request in rows]

    def _rows(self, request: Any) -> list[dict[str, bytes]]:
        fields = self._preprocessor.settings.fields
        columns = [
            pb_utils.get_input_tensor_by_name(request, field.upper()).as_numpy().ravel().tolist() for field in fields
        ]
        return [dict(zip(fields, values, strict=True)) for values in zip(*columns, strict=True)]

    def _response(self, rows: list[dict[str, bytes]], encoded: list[Encoding | Refusal]) -> Any:
        """Answers a request, or refuses it as a whole for a bad row: Triton has one error per request, not per row."""
        settings = self._preprocessor.settings
        encodings = [row for row in encoded if isinstance(row, Encoding)]
        if len(encodings) < len(encoded):
            return _refused(refusal(encoded))
        read = windows(encodings)
        if len(read) > len(encodings) and len(read) > settings.max_windows:
            return _refused(
                f"The rows are {len(read)} windows of {settings.max_input_tokens} tokens together, and a request has "
                f"at most {settings.max_windows}. Send fewer rows at once."
            )
        made: dict[str, Any] = dict(tensors(read, settings.inputs, settings.pad_to, settings.pad_token_id))
        if settings.per_token:
            made["token_spans"] = token_spans(read, made["input_ids"].shape[1])
            made["segment"] = self._segments(rows, encodings)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, np.ascontiguousarray(tensor)) for name, tensor in made.items()]
        )

    def _segments(self, rows: list[dict[str, bytes]], encodings: list[Encoding]) -> Any:
        """Returns the text of the answer's segment for the first window of each row, and empty ones for the others."""
        last = self._preprocessor.settings.segments[-1]
        texts = [
            text
            for row, encoding in zip(rows, encodings, strict=True)
            for text in (b" ".join(row[field] for field in last), *[b""] * len(encoding.more))
        ]
        return np.array(texts, np.object_).reshape(-1, 1)


def _refused(message: str) -> Any:
    """Returns an error of the caller: INVALID_ARG becomes HTTP 400, so that it is no failure of the model."""
    error = pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG)
    return pb_utils.InferenceResponse(error=error)


def refusal(encoded: list[Encoding | Refusal]) -> str:
    """Returns the sentences that name the bad rows."""
    reasons = [f"Row {index} {row.message}." for index, row in enumerate(encoded) if isinstance(row, Refusal)]
    return " ".join([*reasons, "No row of this request was answered."] if len(encoded) > 1 else reasons)
