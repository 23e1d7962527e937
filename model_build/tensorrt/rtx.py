"""Builds with NVIDIA's own ONNX parser and builder on a machine without a GPU, to learn what trtexec would refuse.

In: a graph, the profiles of a build, and a compute capability. Out: the size of the plan, or why there is none. No plan
is kept: TensorRT for RTX (`pip install -e '.[tensorrt-check]'`) has the parser and most of the optimiser of TensorRT,
and its own kernels. Its answer covers the graph's syntax, its types, the profiles, and a kernel for each operation. It
does not cover speed, or what only the kernels of TensorRT 10 refuse. It needs neither a GPU nor a driver.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_build.tensorrt.builder import BuilderRefused, build_plan
from model_build.tensorrt.profiles import Profile
from workloads import TensorRtTarget, Unavailable

RTX_ONLY = {
    ("7.5", r"FP32 GEMM is not supported"): (
        "TensorRT for RTX has no fp32 products for Turing (its support matrix, note 1, and pytorch/TensorRT #4643); "
        "TensorRT has (its support matrix lists FP32 for compute capability 7.5, Tesla T4)"
    )
}
"""Refusals of TensorRT for RTX that TensorRT does not share: compute capability and pattern → the evidence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """One engine: the bytes of its plan, or why there is none."""

    graph: str
    compute_capability: str
    plan_bytes: int | None = None
    refusal: str | None = None
    evidence: str | None = None
    """Why TensorRT itself takes what TensorRT for RTX refused, if that is known."""

    @property
    def failed(self) -> bool:
        return self.refusal is not None and self.evidence is None


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


def check(
    file: Path, profiles: Sequence[Profile], target: TensorRtTarget, *, graph: str, compute_capability: str
) -> Checked:
    """Parses and builds a graph's file as a build of the target would. Raises what `import_rtx` raises."""
    rtx = import_rtx()

    def for_capability(config: Any) -> None:
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(rtx.ComputeCapability, f"SM{compute_capability.replace('.', '')}"), 0)

    try:
        plan = build_plan(rtx, file, profiles, target, for_capability)
    except BuilderRefused as refused:
        known = (
            evidence
            for (capability, pattern), evidence in RTX_ONLY.items()
            if capability == compute_capability and re.search(pattern, str(refused))
        )
        return Checked(
            graph=graph, compute_capability=compute_capability, refusal=str(refused), evidence=next(known, None)
        )
    return Checked(graph=graph, compute_capability=compute_capability, plan_bytes=int(plan.nbytes))
