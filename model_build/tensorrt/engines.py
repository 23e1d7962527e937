"""All engines of a target for the GPU of this machine, from portable graphs.

In: the graphs by name. Out: `encoder.7.5.plan` and so on in the compiled folder, and what they were built with. For
fp16 the graphs are made strongly typed first, with the layers that the workload and the architecture keep in fp32.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import onnx

from model_build import layers
from model_build.compiler import profiles
from model_build.plan import BuildPlan
from model_build.progress import Progress
from model_build.tensorrt import precision
from model_build.tensorrt.compile import Toolchain, compile_engine, plan_name
from workloads import TensorRtTarget, TextToText


def compile_graphs(
    plan: BuildPlan,
    target: TensorRtTarget,
    toolchain: Toolchain,
    portable: Mapping[str, Path],
    graphs: Path,
    progress: Progress,
) -> dict[str, str]:
    """Raises `TrtexecFailed` or `UnknownLayer`."""
    shapes = profiles(plan.workload.model, plan.variant.serving, plan.checkpoint)
    for name, graph in portable.items():
        typed = graph if target.precision == "fp32" else _in_fp16(plan, target, name, graph)
        engine = graphs / plan_name(name, toolchain.compute_capability)
        compile_engine(typed, engine, shapes[name], target, toolchain, progress)
    return {f"tensorrt_{key}" if key != "tensorrt" else key: value for key, value in _versions(toolchain).items()}


def _in_fp16(plan: BuildPlan, target: TensorRtTarget, name: str, graph: Path) -> Path:
    model = onnx.load(graph)
    if isinstance(plan.workload.model, TextToText):
        kept = (*precision.t5_islands(model), *layers.of_graph(target.fp32_layers, name))
        typed = precision.to_fp16(model, kept, half=precision.T5_CACHES)
    else:
        typed = precision.to_fp16(model, target.fp32_layers)
    file = graph.with_name(f"{name}.fp16.onnx")
    onnx.save(typed, file)
    return file


def _versions(toolchain: Toolchain) -> dict[str, str]:
    found = asdict(toolchain)
    return {key: found[key] for key in ("tensorrt", "gpu", "compute_capability", "driver")}
