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
from model_build.tensorrt import precision
from model_build.tensorrt.compile import Toolchain, compile_engine, plan_name
from model_build.tensorrt.profiles import profiles
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
    _check_names(inputs, target, portable)
    shapes = profiles(inputs.model, inputs.batches, inputs.checkpoint.config)
    for name, graph in portable.items():
        typed = graph if target.precision == "fp32" else _in_fp16(inputs, target, name, graph)
        engine = graphs / plan_name(name, toolchain.compute_capability)
        compile_engine(typed, engine, shapes[name], target, toolchain, inputs.timing_caches, progress)
    return toolchain.record()


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
