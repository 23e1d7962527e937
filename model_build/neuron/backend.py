"""The backend of Inferentia: compiles a BERT for Neuron. It compares nothing: compiling needs no chip, running does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from model_build.compile_inputs import CompileInputs
from model_build.neuron import goldens
from model_build.neuron.compile import check_toolchain, load_torchscript
from model_build.neuron.compile import compile_graphs as compile_network
from model_build.progress import Progress
from workloads import NeuronTarget

if TYPE_CHECKING:
    from model_build.parity import Compare
    from model_build.plan import BuildPlan
    from model_build.tensorrt.rtx import Checked


def compile_graphs(inputs: CompileInputs, graphs: Path, scratch: Path, progress: Progress) -> dict[str, str]:
    """Writes the target's files into `graphs` and returns what they were made with.

    Raises `Unavailable` where Neuron's packages are not installed.
    """
    model, target = inputs.encoder, inputs.target
    assert isinstance(target, NeuronTarget)
    check_toolchain(target, workload=inputs.workload, target_name=inputs.target_name)
    progress("Loading the checkpoint")
    if inputs.checkpoint.torchscript is not None:
        module = load_torchscript(inputs.checkpoint.torchscript, model, target)
        progress("Asking the original for golden rows")
        goldens.write(module, inputs, graphs)
        return compile_network(module, model, target, graphs, progress)
    from model_build.encoder import bert

    network = bert.load(inputs.checkpoint, model, apart=target.runtime == "neuronx")
    progress("Asking the original for golden rows")
    goldens.write(network, inputs, graphs)
    return compile_network(network, model, target, graphs, progress)


def check_engines(inputs: CompileInputs, scratch: Path, progress: Progress) -> tuple[Checked, ...]:
    """Neuron has no engines that another builder could check."""
    return ()


def layers(inputs: CompileInputs, scratch: Path, progress: Progress) -> tuple[str, ...]:
    """Neuron's compiler takes its casts for the whole graph."""
    return ()


def served_folder(plan: BuildPlan, made: Path) -> Path:
    return made


def comparer(plan: BuildPlan, made: Path, progress: Progress) -> Compare | None:
    """Returns None: this machine cannot run what it compiled."""
    return None
