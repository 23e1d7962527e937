"""Compiles a model for Neuron: makes the calls of `arguments`, one for each sequence length.

In: a torch module whose forward takes the workload's `model.inputs` by position, or the folder of a SavedModel. Out: in
`folder`, model.LENGTH.neuron.pt (TorchScript) or model.LENGTH/ (a SavedModel) for each length, and the versions of what
made them. Needs AWS's packages and no chip; they are imported when something is compiled, and not before.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import operator
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from model_build.neuron import arguments
from model_build.neuron.arguments import Call
from model_build.progress import Progress
from workloads import EncoderModel, NeuronTarget, Unavailable

CHIPS = {"neuron": "Inf1", "neuronx": "Inf2"}

PACKAGES = {
    ("pytorch", "neuron"): "torch_neuron",
    ("pytorch", "neuronx"): "torch_neuronx",
    ("tensorflow", "neuron"): "tensorflow.neuron",
    ("tensorflow", "neuronx"): "tensorflow_neuronx",
}
DISTRIBUTIONS = {
    "torch_neuron": ("torch", "torch-neuron", "neuron-cc"),
    "torch_neuronx": ("torch", "torch-neuronx", "neuronx-cc"),
    "tensorflow.neuron": ("tensorflow", "tensorflow-neuron", "neuron-cc"),
    "tensorflow_neuronx": ("tensorflow", "tensorflow-neuronx", "neuronx-cc"),
}


def check_toolchain(model: EncoderModel, target: NeuronTarget, *, workload: str, target_name: str) -> None:
    """Raises `Unavailable` where Neuron's package is not installed, before anything is loaded."""
    package = PACKAGES[model.framework, target.runtime]
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

    module.requires_grad_(False)  # what stays on the CPU would record gradients in the threads of data parallelism
    package = PACKAGES["pytorch", target.runtime]
    importlib.import_module(package)
    for call in arguments.calls(target, model):
        progress(_step(call))
        with torch.no_grad():
            traced = _function(call)(module, torch_examples(call), **_keywords(call, folder))
        torch.jit.save(traced, str(folder / call.output))
    shutil.rmtree(folder / arguments.WORKDIR)
    return _versions(package)


def compile_saved_model(
    source: Path, model: EncoderModel, target: NeuronTarget, folder: Path, progress: Progress
) -> dict[str, str]:
    """Compiles a SavedModel. Returns the toolchain's versions. Raises `UsageError`."""
    from model_build.checkpoint import saved_model

    planned = arguments.calls(target, model, saved_model.tensorflow_version(source))
    package = PACKAGES["tensorflow", target.runtime]
    importlib.import_module(package)
    tensorflow = importlib.import_module("tensorflow")
    for call in planned:
        progress(_step(call))
        with _environment(call):
            if call.function == arguments.SAVED_MODEL_COMPILE:
                _function(call)(str(source), str(folder / call.output), **_keywords(call, folder))
            else:
                signature = tensorflow.saved_model.load(str(source)).signatures["serving_default"]
                _function(call)(signature, _tensorflow_examples(tensorflow, call)).save(str(folder / call.output))
    shutil.rmtree(folder / arguments.WORKDIR, ignore_errors=True)
    return _versions(package)


def torch_examples(call: Call) -> tuple[Any, ...]:
    """Returns rows without padding, all of them the same token."""
    import torch

    return tuple(
        torch.full(shape, call.length if name == "valid_length" else 1, dtype=torch.int64)
        for name, shape in call.inputs
    )


def _tensorflow_examples(tensorflow: Any, call: Call) -> dict[str, Any]:
    return {
        name: tensorflow.fill(shape, tensorflow.constant(call.length if name == "valid_length" else 1, call.dtype))
        for name, shape in call.inputs
    }


def _function(call: Call) -> Any:
    """Finds a function by its dotted name: a Neuron package puts itself into its framework when it is imported."""
    top, _, path = call.function.partition(".")
    return operator.attrgetter(path)(sys.modules[top])


def _keywords(call: Call, folder: Path) -> dict[str, Any]:
    """Returns the call's keywords, with the compiler's folder made in `folder`."""
    keywords = dict(call.keywords)
    if isinstance(workdir := keywords.get("compiler_workdir"), str):
        (folder / workdir).mkdir(parents=True, exist_ok=True)
        keywords["compiler_workdir"] = str(folder / workdir)
    return keywords


@contextmanager
def _environment(call: Call) -> Iterator[None]:
    """Sets the environment variables of a call: tensorflow-neuron takes its options from there."""
    before = {name: os.environ.get(name) for name in call.environment}
    os.environ.update(call.environment)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _step(call: Call) -> str:
    rows = call.inputs[0][1][0]
    return f"Compiling for Neuron: batch {rows}, {call.length} tokens"


def _versions(package: str) -> dict[str, str]:
    """Returns the versions of what is installed; an image may bring TensorFlow under another name."""
    versions = {}
    for name in DISTRIBUTIONS[package]:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
