"""Builds all engines of a target for the GPU of this machine, from portable graphs.

In: the graphs by name. Out: `encoder.7.5.plan` and so on in the compiled folder, and what they were built with. For
fp16 the graphs are made strongly typed first, with the layers that the workload keeps in fp32.
Timing caches are kept for all builds in build/timing_caches.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx

from model_build import layers
from model_build.compile_inputs import CompileInputs
from model_build.progress import Progress
from model_build.tensorrt import precision, rtx
from model_build.tensorrt.compile import Toolchain, compile_engine, plan_name
from model_build.tensorrt.profiles import Profile, profiles
from model_build.tensorrt.trtexec import command
from workloads import TensorRtTarget, TextToText


def toolchain(inputs: CompileInputs) -> Toolchain:
    """Finds what this machine builds the target's engines with. Raises `Unavailable`."""
    assert isinstance(inputs.target, TensorRtTarget)
    return Toolchain.find(inputs.workload, inputs.target_name, inputs.target)


def compile_graphs(
    inputs: CompileInputs,
    target: TensorRtTarget,
    toolchain: Toolchain,
    portable: Mapping[str, Path],
    graphs: Path,
    progress: Progress,
) -> dict[str, str]:
    """Builds an engine for each graph. Raises `Unavailable` if trtexec fails, `UsageError` for an unknown layer."""
    for name, graph, shapes in _typed(inputs, target, portable):
        engine = graphs / plan_name(name, toolchain.compute_capability)
        compile_engine(graph, engine, shapes, target, toolchain, inputs.timing_caches, progress)
    return toolchain.record()


def check_graphs(inputs: CompileInputs, portable: Mapping[str, Path], progress: Progress) -> tuple[rtx.Checked, ...]:
    """Returns for each graph and each GPU of the target what TensorRT for RTX says to the build's own command.

    The graphs and the profiles are those that `compile_graphs` hands to trtexec; no engine is kept.
    Raises `Unavailable` where it is not installed, `UsageError` for an unknown layer.
    """
    target, builder, checked = inputs.target, rtx.builder_name(), []
    assert isinstance(target, TensorRtTarget)
    for name, graph, shapes in _typed(inputs, target, portable):
        for capability in target.compute_capabilities:
            engine = graph.with_name(plan_name(name, capability))
            progress(f"Building {engine.name} with {builder}")
            cache = graph.with_name("timing.cache")
            asked = command(graph, engine, shapes, target, tensorrt="10", timing_cache=cache)
            checked.append(rtx.check(asked, name, capability))
    return tuple(checked)


def _typed(
    inputs: CompileInputs, target: TensorRtTarget, portable: Mapping[str, Path]
) -> Iterator[tuple[str, Path, tuple[Profile, ...]]]:
    """Yields what trtexec gets: each graph's name, the graph in the target's precision, and its profiles."""
    _check_names(inputs, target, portable)
    shapes = profiles(inputs.model, inputs.batches, inputs.checkpoint.config)
    for name, graph in portable.items():
        yield name, graph if target.precision == "fp32" else _in_fp16(inputs, target, name, graph), shapes[name]


def layer_names(inputs: CompileInputs, portable: Mapping[str, Path]) -> Iterator[str]:
    """Yields the names for `fp32_layers`; a T5's begin with the graph's."""
    for name, graph in portable.items():
        inside = f"{name}." if isinstance(inputs.model, TextToText) else ""
        yield from (inside + layer for layer in layers.names(onnx.load(graph, load_external_data=False)))


def _in_fp16(inputs: CompileInputs, target: TensorRtTarget, name: str, graph: Path) -> Path:
    model = onnx.load(graph)
    if isinstance(inputs.model, TextToText):
        typed = precision.to_fp16(model, layers.of_graph(target.fp32_layers, name), half=precision.T5_CACHES)
    else:
        typed = precision.to_fp16(model, target.fp32_layers)
    file = graph.with_name(f"{name}.fp16.onnx")
    onnx.save(typed, file)
    return file


def _check_names(inputs: CompileInputs, target: TensorRtTarget, portable: Mapping[str, Path]) -> None:
    """A T5's names begin with a graph's. Each graph checks the rest of the name itself."""
    lost = [name for name in target.fp32_layers if name.split(".")[0] not in portable]
    if lost and isinstance(inputs.model, TextToText):
        raise layers.unknown_layer(lost, tuple(layer_names(inputs, portable)))
