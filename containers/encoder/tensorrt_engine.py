"""Runs the compiled model on TensorRT: an `Engine` over one plan.

Triton serves the plan with its own backend, and this module is not packed. It runs a plan outside Triton: for the
build's parity gate, and for any `Predictor` on a machine with the GPU. Not run where this was written: there is no GPU.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..text2text.tensorrt_plan import Cuda, Plan, find_plan
from .settings import Settings


class TensorRtEngine:
    """Takes batches up to the number of rows and the length that the plan was built for. Outputs are float32."""

    def __init__(self, folder: Path, settings: Settings, device: int = 0) -> None:
        """Loads the plan of `folder` that was built for this GPU. Raises `PlanRefused`."""
        self._cuda, self._settings = Cuda(device), settings
        self._plan = Plan(find_plan(folder, "model", self._cuda.compute_capability()), self._cuda)

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        for name in self._settings.inputs:
            self._plan.write(name, tensors[name])
        self._plan.enqueue()
        outputs = {name: self._plan.read(name) for name in self._settings.graph_outputs}
        self._cuda.wait()
        return outputs
