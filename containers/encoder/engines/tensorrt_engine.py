"""Runs a TensorRT plan outside Triton: an `Engine` for the build's parity gate, and for any `Predictor` on the GPU.

Triton serves the plan with its own backend, so this module is not packaged. Not tested on a GPU.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...text2text.tensorrt_plan import Cuda, Plan, find_plan
from ..settings import Settings


class TensorRtEngine:
    """Takes batches up to the number of rows and the length that the plan was built for. Outputs are float32."""

    def __init__(self, folder: Path, settings: Settings, device: int = 0) -> None:
        """Loads the plan of `folder` that was built for this GPU. Raises `PlanRefused`."""
        self._cuda, self._settings = Cuda(device), settings
        self._plan = Plan(find_plan(folder, "model", self._cuda.compute_capability()), self._cuda)
        self._context = self._plan.context(self._plan.largest)
        self._addresses = {name: self._cuda.allocate(self._context.bytes(name)) for name in self._plan.types}
        self._context.place(self._addresses)

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        types = self._plan.types
        # Named, because a copy may still be reading them when its call returns.
        fed = {name: np.ascontiguousarray(tensors[name], types[name]) for name in self._settings.inputs}
        for name, values in fed.items():
            self._context.shape(name, values.shape)
            self._cuda.upload(self._addresses[name], values)
        self._context.enqueue()
        outputs = {name: np.empty(self._context.shape_of(name), types[name]) for name in self._settings.graph_outputs}
        for name, values in outputs.items():
            self._cuda.download(values, self._addresses[name])
        self._cuda.wait()
        return outputs
