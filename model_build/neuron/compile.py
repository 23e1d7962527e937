"""Compiles a model for Neuron: makes the calls of `arguments`, one for each sequence length.

In: a torch module whose forward takes the workload's `model.inputs` by position. Out: in `folder`,
model.LENGTH.neuron.pt (TorchScript) for each length, and the versions of what made them. Needs AWS's packages and no
chip; they are imported when something is compiled, and not before.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import operator
import shutil
import sys
from pathlib import Path
from typing import Any

from containers.encoder.settings import GRAPH_OUTPUTS
from model_build.checkpoint.files import broken, loading
from model_build.neuron import arguments
from model_build.neuron.arguments import Call
from model_build.progress import Progress
from workloads import EncoderModel, NeuronTarget, Unavailable

CHIPS = {"neuron": "Inf1", "neuronx": "Inf2"}

PACKAGES = {"neuron": "torch_neuron", "neuronx": "torch_neuronx"}
DISTRIBUTIONS = {
    "torch_neuron": ("torch", "torch-neuron", "neuron-cc"),
    "torch_neuronx": ("torch", "torch-neuronx", "neuronx-cc"),
}


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


def compile_graphs(
    module: Any, model: EncoderModel, target: NeuronTarget, folder: Path, progress: Progress
) -> dict[str, str]:
    """Compiles a torch module in evaluation mode. Returns the toolchain's versions."""
    import torch

    for parameter in module.parameters():  # a ScriptModule has no requires_grad_ of its own
        parameter.requires_grad_(False)  # what stays on the CPU would record gradients in data parallelism's threads
    package = PACKAGES[target.runtime]
    importlib.import_module(package)
    for call in arguments.calls(target, model):
        progress(_step(call))
        with torch.no_grad():
            traced = _function(call.function)(module, torch_examples(call), **_keywords(call, folder))
        if call.then is not None:
            _function(call.then)(traced)
        torch.jit.save(traced, str(folder / call.output))
    shutil.rmtree(folder / arguments.WORKDIR)
    return _versions(package)


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


def _keywords(call: Call, folder: Path) -> dict[str, Any]:
    """Returns the call's keywords, with the compiler's folder made in `folder`."""
    keywords = dict(call.keywords)
    if isinstance(workdir := keywords.get("compiler_workdir"), str):
        (folder / workdir).mkdir(parents=True, exist_ok=True)
        keywords["compiler_workdir"] = str(folder / workdir)
    return keywords


def _step(call: Call) -> str:
    rows = call.inputs[0].shape[0]
    return f"Compiling for Neuron: batch {rows}, {call.length} tokens"


def _versions(package: str) -> dict[str, str]:
    """Returns the versions of the installed packages."""
    versions = {}
    for name in DISTRIBUTIONS[package]:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
