"""A BERT compiled for Neuron. Nothing is compared: compiling needs no chip, running does."""

from pathlib import Path

from model_build.neuron.compile import check_toolchain, compile_saved_model
from model_build.neuron.compile import compile_graphs as compile_network
from model_build.plan import BuildPlan
from model_build.progress import Progress
from workloads import NeuronTarget, TextToText


def compile_graphs(plan: BuildPlan, graphs: Path, scratch: Path, progress: Progress) -> dict[str, str]:
    """Write the target's files into `graphs`; what they were made with. Raises `MissingNeuron`."""
    model, target = plan.workload.model, plan.target
    assert not isinstance(model, TextToText)
    assert isinstance(target, NeuronTarget)
    check_toolchain(model, target, workload=plan.workload.name, target_name=plan.variant.target)
    if model.framework == "tensorflow":
        return compile_saved_model(plan.checkpoint.folder, model, target, graphs, progress)
    from model_build.encoder import bert

    progress("Loading the checkpoint")
    return compile_network(bert.load(plan.checkpoint, model), model, target, graphs, progress)


def compare(plan: BuildPlan, made: Path, progress: Progress) -> None:
    """None: this machine cannot run what it compiled."""
    return


def fp32_layers(plan: BuildPlan, scratch: Path, progress: Progress) -> tuple[str, ...]:
    """Never called: where nothing is compared no parity gate fails."""
    raise AssertionError(plan.target.runtime)
