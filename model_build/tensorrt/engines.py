"""All engines of a target for the GPU of this machine, from portable graphs; and which layers to keep in fp32.

In: the graphs by name. Out: `encoder.7.5.plan` and so on in the compiled folder, and what they were built with. For
fp16 the graphs are made strongly typed first, with the layers that the workload and the architecture keep in fp32.
Timing caches are kept for all builds in build/timing_caches.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from model_build import bisect, layers, parity
from model_build.compiler import profiles
from model_build.errors import UnknownLayer
from model_build.plan import BuildPlan
from model_build.progress import Progress, silent
from model_build.tensorrt import precision
from model_build.tensorrt.compile import Toolchain, compile_engine, plan_name
from workloads import TensorRtTarget, TextToText

TIMING_CACHES = Path("build/timing_caches")


def compile_graphs(
    plan: BuildPlan,
    target: TensorRtTarget,
    toolchain: Toolchain,
    portable: Mapping[str, Path],
    graphs: Path,
    progress: Progress,
) -> dict[str, str]:
    """Raises `TrtexecFailed` or `UnknownLayer`."""
    _check_names(plan, target, portable)
    shapes = profiles(plan.workload.model, plan.engine_serving, plan.checkpoint)
    for name, graph in portable.items():
        typed = graph if target.precision == "fp32" else _in_fp16(plan, target, name, graph)
        engine = graphs / plan_name(name, toolchain.compute_capability)
        compile_engine(typed, engine, shapes[name], target, toolchain, plan.root / TIMING_CACHES, progress)
    return toolchain.record()


def fp32_layers(
    plan: BuildPlan,
    target: TensorRtTarget,
    toolchain: Toolchain,
    portable: Mapping[str, Path],
    tried: Path,
    compare: Callable[[Path], Sequence[parity.Comparison]],
    progress: Progress,
) -> tuple[str, ...]:
    """The layers with which the gate passes, by bisection: each try builds engines into `tried` and compares them.

    Raises `Fp32Fails`, and what building raises.
    """

    def passes(kept: frozenset[str]) -> bool:
        progress(f"Searching for layers to keep in fp32, trying {len(kept)}")
        with_kept = target.model_copy(update={"fp32_layers": tuple(kept)})
        compile_graphs(plan, with_kept, toolchain, portable, tried, silent)
        return not parity.differences(parity.report(plan.workload.model.task, compare(tried)), target.parity)

    return bisect.fp32_layers(list(_layers(plan, portable)), passes)


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


def _layers(plan: BuildPlan, portable: Mapping[str, Path]) -> Iterator[str]:
    """By the names that `fp32_layers` takes: a T5's begin with the graph's. What is kept anyway is not among them."""
    for name, graph in portable.items():
        model = onnx.load(graph, load_external_data=False)
        if not isinstance(plan.workload.model, TextToText):
            yield from layers.names(model)
            continue
        islands = precision.t5_islands(model)
        yield from (f"{name}.{layer}" for layer in layers.names(model) if layer not in islands)


def _check_names(plan: BuildPlan, target: TensorRtTarget, portable: Mapping[str, Path]) -> None:
    """A T5's names say of which graph. What a graph makes of the rest of them it checks itself."""
    lost = [name for name in target.fp32_layers if name.split(".")[0] not in portable]
    if lost and isinstance(plan.workload.model, TextToText):
        raise UnknownLayer(lost, tuple(_layers(plan, portable)))
