"""Backends: modules that compile a plan's target and compare the result with the original.

A backend is imported only when it is used: AWS's Neuron images have neither onnx nor transformers, and planning needs
no torch.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, cast

from model_build.compile_inputs import BackendName, CompileInputs
from model_build.parity import Compare
from model_build.plan import BuildPlan
from model_build.progress import Progress


class Backend(Protocol):
    def compile_graphs(self, inputs: CompileInputs, graphs: Path, scratch: Path, progress: Progress) -> dict[str, str]:
        """Writes the target's files into `graphs` and returns the versions of the tools that made them.

        A portable export stays in `scratch`, and is reused if it exists.
        """

    def typed_graphs(self, inputs: CompileInputs, folder: Path, scratch: Path, progress: Progress) -> dict[str, Path]:
        """Returns the graphs from which TensorRT builds engines, in the target's precision. For TensorRT targets only.

        Raises `Unavailable` if ModelOpt, which makes those of int8, is not installed.
        """

    def layers(self, inputs: CompileInputs, scratch: Path, progress: Progress) -> tuple[str, ...]:
        """Returns the layers that can stay in fp32, in the order of the graphs; none if the runtime has no choice."""

    def served_folder(self, plan: BuildPlan, made: Path) -> Path:
        """The folder in `made` from which the serving code loads the graphs."""

    def comparer(self, plan: BuildPlan, made: Path, progress: Progress) -> Compare | None:
        """Loads the original and the other files of the repository `made`, to compare compiled models with.

        Returns None if this machine cannot run the compiled model.
        """


BACKENDS: Mapping[BackendName, str] = {
    "text2text": "model_build.text2text.verify",
    "encoder": "model_build.encoder.verify",
    "neuron": "model_build.neuron.backend",
}


def backend(plan: BuildPlan) -> Backend:
    """Raises ModuleNotFoundError if the build's tools are not installed."""
    return cast(Backend, importlib.import_module(BACKENDS[plan.compile_inputs.backend]))
