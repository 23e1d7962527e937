"""Builds all engines of a target for the GPU of this machine, from portable graphs.

In: the graphs by name. Out: `encoder.7.5.plan` and so on in the compiled folder, and what they were built with. For
fp16 the graphs are made strongly typed first, with the layers that the workload keeps in fp32.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx

from containers.text2text.tensorrt_plan import plan_name
from model_build import layers
from model_build.compile_inputs import CompileInputs
from model_build.progress import Progress
from model_build.tensorrt import precision, rtx
from model_build.tensorrt.profiles import Profile, profiles
from model_build.tensorrt.trtexec import Toolchain, compile_engine
from workloads import TensorRtTarget, TextToText


def toolchain(inputs: CompileInputs) -> Toolchain:
    """Finds what this machine builds the target's engines with. Raises `Unavailable`."""
    return Toolchain.find(inputs.workload, inputs.target_name, _target(inputs))


def compile_graphs(
    inputs: CompileInputs, toolchain: Toolchain, portable: Mapping[str, Path], graphs: Path, progress: Progress
) -> dict[str, str]:
    """Builds an engine for each graph. Raises `Unavailable` if trtexec fails, `UsageError` for an unknown layer."""
    for name, graph, shapes in _typed(inputs, portable):
        engine = graphs / plan_name(name, toolchain.compute_capability)
        compile_engine(graph, engine, shapes, _target(inputs), toolchain, inputs.timing_caches, progress)
    return toolchain.record()


def check_graphs(inputs: CompileInputs, portable: Mapping[str, Path], progress: Progress) -> tuple[rtx.Checked, ...]:
    """Returns for each graph and each GPU of the target what TensorRT for RTX makes of it; no engine is kept.

    Raises `Unavailable` where it is not installed, `UsageError` for an unknown layer.
    """
    target, builder, checked = _target(inputs), rtx.builder_name(), []
    for name, graph, shapes in _typed(inputs, portable):
        for capability in target.compute_capabilities:
            progress(f"Building {plan_name(name, capability)} with {builder}")
            checked.append(rtx.check(graph, shapes, target, graph=name, compute_capability=capability))
    return tuple(checked)


def layer_names(inputs: CompileInputs, portable: Mapping[str, Path]) -> tuple[str, ...]:
    """Returns the names for `fp32_layers`; a T5's begin with the graph's."""
    text2text = isinstance(inputs.model, TextToText)
    return tuple(
        f"{name}.{layer}" if text2text else layer
        for name, graph in portable.items()
        for layer in layers.names(onnx.load(graph, load_external_data=False))
    )


def _target(inputs: CompileInputs) -> TensorRtTarget:
    assert isinstance(inputs.target, TensorRtTarget)
    return inputs.target


def _typed(inputs: CompileInputs, portable: Mapping[str, Path]) -> Iterator[tuple[str, Path, tuple[Profile, ...]]]:
    """Yields what trtexec gets: each graph's name, the graph in the target's precision, and its profiles."""
    target, text2text = _target(inputs), isinstance(inputs.model, TextToText)
    unknown = [name for name in target.fp32_layers if name.split(".")[0] not in portable]
    if unknown and text2text:  # each graph checks the rest of a name itself
        raise layers.unknown_layer(unknown, layer_names(inputs, portable))
    shapes = profiles(inputs.model, inputs.batches, inputs.checkpoint.config)
    for name, graph in portable.items():
        if target.precision == "fp32":
            yield name, graph, shapes[name]
            continue
        kept = layers.of_graph(target.fp32_layers, name) if text2text else target.fp32_layers
        file = graph.with_name(f"{name}.fp16.onnx")
        onnx.save(precision.to_fp16(onnx.load(graph), kept, half=precision.T5_CACHES if text2text else ()), file)
        yield name, file, shapes[name]
