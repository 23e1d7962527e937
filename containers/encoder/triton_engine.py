"""Triton's entry point of the middle step, for a compiled model that no native backend of Triton runs.

Requests of one dynamic batch may differ in length where config.pbtxt sets `allow_ragged_batch` on the inputs: they are
padded to one batch, which runs once, and each gets back its own rows and length.
"""

from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from .engines import load_engine
from .settings import Settings
from .tensors import Tensors, merge, split


class TritonPythonModel:
    """One model instance; Triton calls `initialize` once and `execute` with every dynamic batch."""

    def initialize(self, args: dict[str, str]) -> None:
        folder = Path(args["model_repository"], args["model_version"])
        self._settings = Settings.load(folder / "settings.json")
        self._engine = load_engine.load(folder, self._settings, int(args["model_instance_device_id"]))

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
