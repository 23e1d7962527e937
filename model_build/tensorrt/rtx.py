"""Builds with NVIDIA's own ONNX parser and builder on a machine without a GPU, to learn what trtexec would refuse.

In: the very arguments with which a build runs trtexec, and a compute capability. Out: how large the plan is, or why
there is none. Nothing is kept: TensorRT for RTX (`pip install -e '.[tensorrt-check]'`) has the parser and most of the
optimiser of TensorRT and its own kernels, so its plan loads nowhere here. What it takes says that the graph parses,
that its types are consistent, that the profiles fit its inputs, and that a kernel can be made for each operation. It
says nothing of speed, and nothing of what only the kernels of TensorRT 10 refuse.

`RTX_ALONE` lists what it refuses and TensorRT takes. It needs neither a GPU nor a driver.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_build.tensorrt.profiles import Range, Shape
from workloads import Unavailable

UNUSED_FLAGS = ("saveEngine", "stronglyTyped", "timingCacheFile", "skipInference")
"""Flags that build nothing. Networks of TensorRT for RTX are always strongly typed, as in TensorRT 11."""
SHAPES = {"minShapes": "min", "optShapes": "opt", "maxShapes": "max"}


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownRefusal:
    """A refusal of TensorRT for RTX that TensorRT does not share."""

    says: str
    """A regular expression that its message matches."""
    compute_capability: str
    evidence: str


RTX_ALONE = (
    KnownRefusal(
        says=r"FP32 GEMM is not supported",
        compute_capability="7.5",
        evidence="TensorRT for RTX has no fp32 products for Turing (its support matrix, note 1, and pytorch/TensorRT "
        "#4643); TensorRT has (its support matrix lists FP32 for compute capability 7.5, Tesla T4)",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """One engine: the bytes of its plan, or why there is none."""

    graph: str
    compute_capability: str
    plan_bytes: int | None = None
    refusal: str | None = None
    evidence: str | None = None
    """Why TensorRT itself takes what TensorRT for RTX refused; None where nothing says so."""

    @property
    def failed(self) -> bool:
        return self.refusal is not None and self.evidence is None


@dataclass(slots=True)
class Asked:
    """The arguments of trtexec that change the engine."""

    onnx: Path = Path()
    profiles: dict[int, dict[str, Range]] = field(default_factory=dict)
    tf32: bool = True
    optimization_level: int = 3


def import_rtx() -> Any:
    """Raises `Unavailable` where the extra is not installed."""
    try:
        import tensorrt_rtx_bindings  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise Unavailable(
            f"TensorRT for RTX, which builds engines on a machine without a GPU, cannot be imported ({error}). "
            "Install it with `pip install -e '.[tensorrt-check]'`: 95 MB, under NVIDIA's own licence, for Linux on "
            "x86-64."
        ) from error
    return tensorrt_rtx_bindings


def builder_name() -> str:
    """Raises what `import_rtx` raises."""
    return f"TensorRT for RTX {import_rtx().__version__}"


def check(command: Sequence[str], graph: str, compute_capability: str) -> Checked:
    """Parses and builds what `command` asks trtexec for. Raises what `import_rtx` raises."""
    rtx, asked = import_rtx(), parse(command)
    log = _log(rtx)
    try:
        plan_bytes = _build(rtx, asked, compute_capability, log)
    except _Refused as refused:
        said = str(refused)
        known = [
            each for each in RTX_ALONE if each.compute_capability == compute_capability and re.search(each.says, said)
        ]
        return Checked(
            graph=graph,
            compute_capability=compute_capability,
            refusal=said,
            evidence=known[0].evidence if known else None,
        )
    return Checked(graph=graph, compute_capability=compute_capability, plan_bytes=plan_bytes)


class _Refused(Exception):
    """The parser or the builder does not take it."""


def _build(rtx: Any, asked: Asked, compute_capability: str, log: Any) -> int:
    """Returns the size of the plan in bytes."""
    builder = rtx.Builder(log)
    network = builder.create_network(1 << int(rtx.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = rtx.OnnxParser(network, log)
    if not parser.parse_from_file(str(asked.onnx)):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        raise _Refused("; ".join(f"{error.node_operator()} {error.node_name()}: {error.desc()}" for error in errors))
    config = builder.create_builder_config()
    config.builder_optimization_level = asked.optimization_level
    if not asked.tf32:
        config.clear_flag(rtx.BuilderFlag.TF32)
    config.num_compute_capabilities = 1
    target = getattr(rtx.ComputeCapability, f"SM{compute_capability.replace('.', '')}")
    config.set_compute_capability(target, 0)
    inputs = {each.name: tuple(each.shape) for each in map(network.get_input, range(network.num_inputs))}
    for number, ranges in sorted(asked.profiles.items()):
        _add_profile(builder, config, number, ranges, inputs, log)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise _Refused(log.text())
    return int(plan.nbytes)


def _add_profile(
    builder: Any, config: Any, number: int, ranges: Mapping[str, Range], inputs: Mapping[str, Shape], log: Any
) -> None:
    """Refuses a name that is no input, as trtexec does, and a varying shape without a range, for which it takes 1."""
    varying = {name for name, shape in inputs.items() if -1 in shape}
    if not varying <= set(ranges) <= set(inputs):
        raise _Refused(
            f"profile {number} has shapes for {', '.join(sorted(ranges))}; those of {', '.join(sorted(varying))} vary"
        )
    profile = builder.create_optimization_profile()
    for name, shapes in ranges.items():
        profile.set_shape(name, shapes.min, shapes.opt, shapes.max)
    if config.add_optimization_profile(profile) < 0:
        raise _Refused(f"profile {number}: {log.text()}")


def _log(rtx: Any) -> Any:
    """Returns a logger that keeps errors. NVIDIA's own prints; one that Python calls has to be derived."""

    class Log(rtx.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            rtx.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (rtx.ILogger.ERROR, rtx.ILogger.INTERNAL_ERROR):
                self.errors.append(message)

        def text(self) -> str:
            return "; ".join(self.errors) or "it said nothing"

    return Log()


def parse(command: Sequence[str]) -> Asked:
    """Reads trtexec's arguments as trtexec does: shapes belong to the last `--profile`, or to the first of all.

    Raises ValueError for an unknown flag, which might change the engine.
    """
    asked, number = Asked(), 0
    shapes: dict[int, dict[str, dict[str, Shape]]] = {}
    for argument in command[1:]:
        flag, _, value = argument.removeprefix("--").partition("=")
        if flag in SHAPES:
            for name, shape in _shapes(value).items():
                shapes.setdefault(number, {}).setdefault(name, {})[SHAPES[flag]] = shape
        elif flag == "profile":
            number = int(value)
        elif flag == "onnx":
            asked.onnx = Path(value)
        elif flag == "noTF32":
            asked.tf32 = False
        elif flag == "builderOptimizationLevel":
            asked.optimization_level = int(value)
        elif flag not in UNUSED_FLAGS:
            raise ValueError(f"what {argument} asks of trtexec cannot be asked of TensorRT for RTX yet")
    asked.profiles = {
        number: {name: Range(**ends) for name, ends in ranges.items()} for number, ranges in shapes.items()
    }
    return asked


def _shapes(text: str) -> dict[str, Shape]:
    """Parses name:1x2,name:3."""
    named = (entry.rpartition(":") for entry in text.split(","))
    return {name: tuple(int(size) for size in sizes.split("x")) for name, _, sizes in named}
