"""The code that compiles a plan's target and compares the result: one backend for each runtime and task.

A backend is a module. It is imported when it is chosen and not before: AWS's Neuron images have neither onnx nor
transformers, and planning needs no torch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from model_build.parity import Comparison
from model_build.plan import BuildPlan
from model_build.progress import Progress
from workloads import NeuronTarget, TextToText


class Backend(Protocol):
    """Compiles a target's graphs and asks the compiled model what the original was asked."""

    def compile_graphs(self, plan: BuildPlan, graphs: Path, scratch: Path, progress: Progress) -> dict[str, str]:
        """Writes the target's files into `graphs` and returns the versions of the tools that made them."""

    def compare(self, plan: BuildPlan, made: Path, progress: Progress) -> Sequence[Comparison] | None:
        """Compares the repository `made` with the original; None where this machine cannot run what it compiles."""

    def fp32_layers(self, plan: BuildPlan, scratch: Path, progress: Progress) -> tuple[str, ...]:
        """Searches for the layers to keep in fp32 for the parity gate to pass. Raises `Fp32Fails`."""


def backend(plan: BuildPlan) -> Backend:
    match plan.target, plan.workload.model:
        case NeuronTarget(), _:
            from model_build.neuron import backend as neuron

            return neuron
        case _, TextToText():
            from model_build.text2text import backend as text2text

            return text2text
        case _:
            from model_build.encoder import backend as encoder

            return encoder
