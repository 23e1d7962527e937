"""Builds all engines of a target for the GPU of this machine, from portable graphs.

In: the graphs by name. Out: `encoder.7.5.plan` and so on in the compiled folder, and what they were built with. For
fp16 the graphs are made strongly typed first, with the layers that the workload keeps in fp32. For int8 the products of
the other layers are quantised after that.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import onnx

from containers.text2text.tensorrt_plan import plan_name
from model_build import layers
from model_build.compile_inputs import CompileInputs
from model_build.onnx_session import Tensors
from model_build.progress import Progress
from model_build.tensorrt import int8, precision, rtx
from model_build.tensorrt.profiles import profiles
from model_build.tensorrt.trtexec import Toolchain, compile_engine
from workloads import TensorRtTarget, TextToText, UsageError

Graphs = Mapping[str, Path]
Calibration = Callable[[CompileInputs, Graphs], Mapping[str, Iterable[Tensors]]]
"""Returns the inputs that each graph is calibrated with. It may run the graphs."""


def compile_graphs(
    inputs: CompileInputs, toolchain: Toolchain, typed: Graphs, graphs: Path, progress: Progress
) -> dict[str, str]:
    """Builds an engine for each graph of `typed_graphs`. Raises `Unavailable` if trtexec fails."""
    target, shapes = _target(inputs), profiles(inputs.model, inputs.batches, inputs.checkpoint.config)
    for name, graph in typed.items():
        engine = graphs / plan_name(name, toolchain.compute_capability)
        compile_engine(graph, engine, shapes[name], target, toolchain, inputs.timing_caches, progress)
    return toolchain.record() | (int8.record() if target.precision == "int8" else {})


def check_graphs(inputs: CompileInputs, typed: Graphs, progress: Progress) -> tuple[rtx.Checked, ...]:
    """Returns for each graph and each GPU of the target what TensorRT for RTX makes of it; no engine is kept.

    Raises `Unavailable` where it is not installed.
    """
    target, builder, checked = _target(inputs), rtx.builder_name(), []
    shapes = profiles(inputs.model, inputs.batches, inputs.checkpoint.config)
    for name, graph in typed.items():
        for capability in target.compute_capabilities:
            progress(f"Building {plan_name(name, capability)} with {builder}")
            checked.append(rtx.check(graph, shapes[name], target, graph=name, compute_capability=capability))
    return tuple(checked)


def layer_names(inputs: CompileInputs, portable: Graphs) -> tuple[str, ...]:
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


def typed_graphs(
    inputs: CompileInputs, portable: Graphs, folder: Path, calibration: Calibration, progress: Progress
) -> dict[str, Path]:
    """Returns what trtexec gets: each graph in the target's precision, as NAME.onnx in `folder`.

    Raises `UsageError` for an unknown layer or without rows to calibrate with, `Unavailable` without ModelOpt.
    """
    target, text2text = _target(inputs), isinstance(inputs.model, TextToText)
    unknown = [name for name in target.fp32_layers if name.split(".")[0] not in portable]
    if unknown and text2text:  # each graph checks the rest of a name itself
        raise layers.unknown_layer(unknown, layer_names(inputs, portable))
    if target.precision == "fp32":
        return dict(portable)
    folder.mkdir(exist_ok=True)
    kept = {name: layers.of_graph(target.fp32_layers, name) if text2text else target.fp32_layers for name in portable}
    half = {name: folder / f"{name}.{'fp16.' if target.precision == 'int8' else ''}onnx" for name in portable}
    for name, graph in portable.items():
        caches = precision.T5_CACHES if text2text else ()
        onnx.save(precision.to_fp16(onnx.load(graph), kept[name], half=caches), half[name])
    if target.precision == "fp16":
        return half
    if not inputs.calibration:
        raise UsageError(
            f"targets.{inputs.target_name}.precision: int8 needs rows to calibrate with, and evaluation.jsonl has "
            "none. Add rows as users send them, 128 or more, or set precision to fp16."
        )
    rows, made = calibration(inputs, half), {}
    for name, graph in half.items():
        progress(f"Quantising {name} with ModelOpt")
        made[name] = folder / f"{name}.onnx"
        products = layers.products(portable[name])
        left = layers.chosen(layers.names(onnx.load(portable[name], load_external_data=False)), kept[name])
        int8.quantise(graph, made[name], [node for node, layer in products.items() if layer not in left], rows[name])
    return made
