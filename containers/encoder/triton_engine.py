"""Triton's entry of the middle step, where no native backend runs the compiled model: the graph's inputs and outputs.

Requests of one dynamic batch may differ in length if config.pbtxt says `allow_ragged_batch` of the inputs: they are
padded to one batch, which runs once, and each gets back its own rows and length.
"""

from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from . import engine as engines
from .padding import Tensors, merge, split
from .settings import Settings


class TritonPythonModel:
    """One model instance; Triton calls `initialize` once and `execute` with every dynamic batch."""

    def initialize(self, args: dict[str, str]) -> None:
        folder = Path(args["model_repository"], args["model_version"])
        self._settings = Settings.load(folder / "settings.json")
        self._engine = engines.load(folder, self._settings)

    def execute(self, requests: list[Any]) -> list[Any]:
        given = [self._tensors(request) for request in requests]
        outputs = self._engine.run(merge(given, self._settings.pad_token_id))
        shapes = [tensors["input_ids"].shape for tensors in given]
        return [_response(own) for own in split(outputs, [(rows, length) for rows, length in shapes])]

    def _tensors(self, request: Any) -> Tensors:
        return {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self._settings.inputs}


def _response(outputs: Tensors) -> Any:
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor(name, np.ascontiguousarray(output)) for name, output in outputs.items()]
    )
