"""The backend of Inferentia: compiles a BERT for Neuron with the calls of `arguments`, one for each sequence length.

Out: in a folder, model.LENGTH.neuron.pt (TorchScript) for each length, golden rows, and the versions of the tools.
Compiling needs AWS's packages and no chip; running needs the chip, so nothing is compared here.
"""

from __future__ import annotations

import importlib
import operator
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from containers.encoder.settings import GRAPH_OUTPUTS
from model_build.checkpoint.files import broken, loading
from model_build.compile_inputs import CompileInputs
from model_build.compiled import TOOLS, tool_version
from model_build.neuron import arguments, goldens
from model_build.neuron.arguments import Call
from model_build.progress import Progress
from workloads import EncoderModel, NeuronTarget, Unavailable

if TYPE_CHECKING:
    from model_build.parity import Compare
    from model_build.plan import BuildPlan

CHIPS = {"neuron": "Inf1", "neuronx": "Inf2"}
PACKAGES = {"neuron": "torch_neuron", "neuronx": "torch_neuronx"}


def compile_graphs(inputs: CompileInputs, graphs: Path, scratch: Path, progress: Progress) -> dict[str, str]:
    """Writes the target's files into `graphs` and returns what they were made with.

    Raises `Unavailable` where Neuron's packages are not installed.
    """
    model, target = inputs.encoder, inputs.target
    assert isinstance(target, NeuronTarget)
    check_toolchain(target, workload=inputs.workload, target_name=inputs.target_name)
    progress("Loading the checkpoint")
    network: Any
    if inputs.checkpoint.torchscript is not None:
        network = load_torchscript(inputs.checkpoint.torchscript, model, target)
    else:
        from model_build.encoder import bert

        network = bert.load(inputs.checkpoint, model, apart=target.runtime == "neuronx")
    progress("Running the original on golden rows")
    goldens.write(network, inputs, graphs)
    return compile_network(network, model, target, graphs, progress)


def layers(inputs: CompileInputs, scratch: Path, progress: Progress) -> tuple[str, ...]:
    """Neuron's compiler takes its casts for the whole graph."""
    return ()


def served_folder(plan: BuildPlan, made: Path) -> Path:
    return made


def comparer(plan: BuildPlan, made: Path, progress: Progress) -> Compare | None:
    """Returns None: this machine cannot run what it compiled."""
    return None


def check_toolchain(target: NeuronTarget, *, workload: str, target_name: str) -> None:
    """Raises `Unavailable` where Neuron's package is not installed, before anything is loaded."""
    package = PACKAGES[target.runtime]
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise Unavailable(
            f"The Python package '{package}' is not installed, and compiling {workload} for {target_name} "
            f"({CHIPS[target.runtime]}) needs it. It is not on PyPI; AWS's Neuron images have it. Compile remotely "
            f"with `python -m model_build build {workload} --target {target_name} --on sagemaker`, or run "
            "the build in such an image. No Inferentia chip is needed to compile."
        ) from error


def compile_network(
    module: Any, model: EncoderModel, target: NeuronTarget, folder: Path, progress: Progress
) -> dict[str, str]:
    """Compiles a torch module in evaluation mode. Returns the toolchain's versions."""
    import torch

    for parameter in module.parameters():  # a ScriptModule has no requires_grad_ of its own
        parameter.requires_grad_(False)  # what stays on the CPU would record gradients in data parallelism's threads
    importlib.import_module(PACKAGES[target.runtime])
    for call in arguments.calls(target, model):
        progress(f"Compiling for Neuron: batch {target.batch_size}, {call.length} tokens")
        workdir = folder / arguments.WORKDIR / str(call.length)
        workdir.mkdir(parents=True)
        with torch.no_grad():
            keywords = dict(call.keywords) | {"compiler_workdir": str(workdir)}
            traced = _function(call.function)(module, torch_examples(call), **keywords)
        if call.then is not None:
            _function(call.then)(traced)
        torch.jit.save(traced, str(folder / call.output))
    shutil.rmtree(folder / arguments.WORKDIR)
    return {tool: version for tool in TOOLS["neuron"] if (version := tool_version(tool)) is not None}


def load_torchscript(file: Path, model: EncoderModel, target: NeuronTarget) -> Any:
    """Loads a TorchScript file and runs it once, to see that it is called as the workload says. Raises `UsageError`."""
    import torch

    [call, *_] = arguments.calls(target, model)
    with loading(file), torch.no_grad():
        jit: Any = torch.jit
        module = jit.load(str(file), map_location="cpu").eval()
        outputs = module(*torch_examples(call))
    wanted = GRAPH_OUTPUTS[model.task]
    if not isinstance(outputs, tuple) or len(outputs) != len(wanted):
        given = f"a tuple of {len(outputs)}" if isinstance(outputs, tuple) else type(outputs).__name__
        raise broken(file, f"returns {given}, but for {model.task} it has to return a tuple of {', '.join(wanted)}.")
    return module


def torch_examples(call: Call) -> tuple[Any, ...]:
    """Returns rows without padding, all of them the same token."""
    import torch

    return tuple(
        torch.full(shape, call.length if name == "valid_length" else 1, dtype=getattr(torch, dtype))
        for name, dtype, shape in call.inputs
    )


def _function(name: str) -> Any:
    """Finds a function by its dotted name: a Neuron package puts itself into its framework when it is imported."""
    top, _, path = name.partition(".")
    return operator.attrgetter(path)(sys.modules[top])
