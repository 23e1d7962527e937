"""The code that compiles a plan's target and compares the result with the original: one backend per runtime and task.

A backend is a module. It is imported when it is chosen and not before: AWS's Neuron images have neither onnx nor
transformers, and planning needs no torch.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from model_build.compile_inputs import BackendName, CompileInputs
from model_build.parity import Compare
from model_build.plan import BuildPlan
from model_build.progress import Progress
from model_build.tensorrt.rtx import Checked


class Backend(Protocol):
    def compile_graphs(self, inputs: CompileInputs, graphs: Path, scratch: Path, progress: Progress) -> dict[str, str]:
        """Writes the target's files into `graphs` and returns the versions of the tools that made them.

        A portable export stays in `scratch`, and is used where it is there already.
        """

    def check_engines(self, inputs: CompileInputs, scratch: Path, progress: Progress) -> tuple[Checked, ...]:
        """Has NVIDIA's builder for machines without a GPU build what trtexec would get; none where that gets nothing.

        Raises `Unavailable` where that builder is not installed.
        """

    def layers(self, inputs: CompileInputs, scratch: Path, progress: Progress) -> tuple[str, ...]:
        """The layers that may be kept in fp32, in the order of the graphs; none where the runtime has no choice."""

    def served_folder(self, plan: BuildPlan, made: Path) -> Path:
        """The folder in `made` from which the serving code loads the graphs."""

    def comparer(self, plan: BuildPlan, made: Path, progress: Progress) -> Compare | None:
        """Loads the original, and what the repository `made` has besides the graphs, to compare compiled models with.

        None where this machine cannot run what it compiles.
        """


def _text2text() -> Backend:
    from model_build.text2text import backend

    return backend


def _encoder() -> Backend:
    from model_build.encoder import backend

    return backend


def _neuron() -> Backend:
    from model_build.neuron import backend

    return backend


BACKENDS: Mapping[BackendName, Callable[[], Backend]] = {
    "text2text": _text2text,
    "encoder": _encoder,
    "neuron": _neuron,
}


def backend(plan: BuildPlan) -> Backend:
    """Raises ModuleNotFoundError where the build's tools are not installed."""
    return BACKENDS[plan.compile_inputs.backend]()
