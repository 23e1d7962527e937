"""Writes the exact `trtexec` command that builds one engine from one graph. Pure.

In: files, profiles, a target, TensorRT's major version. Out: a list of arguments; nothing is run. Which version an
image holds is asked of it when it builds (`compile.py`), never looked up in a table.

Flags are those that trtexec itself parses: samples/common/sampleOptions.cpp of NVIDIA/TensorRT, its last 10.x sources
and commit d5883286 (11.x). The two differ in one: TensorRT 10 must be told to take types from the graph
(`--stronglyTyped`), TensorRT 11 always does and calls the flag deprecated. So only the graph decides precision, and no
command says `--fp16`, which TensorRT 11 refuses. `--noTF32` keeps fp32 what it says on Ampere (A10G), where TensorRT
would multiply with ten bits of mantissa; Turing (T4) has no TF32. Where there are several profiles, `--profile=1`
begins the shapes of the second, as in NVIDIA's cookbook. Engines are not `--versionCompatible`: they are built
in the image they are served in, and the lean runtime inside such a plan is one more thing to trust.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from model_build.tensorrt.profiles import Profile, Shape
from workloads import TensorRtTarget

Major = Literal["10", "11"]


def command(
    graph: Path,
    engine: Path,
    profiles: Sequence[Profile],
    target: TensorRtTarget,
    *,
    tensorrt: Major,
    timing_cache: Path,
    program: str = "trtexec",
) -> list[str]:
    """Returns the arguments that build `engine` and do not time it afterwards."""
    return [
        program,
        f"--onnx={graph}",
        f"--saveEngine={engine}",
        *(flag for index, profile in enumerate(profiles) for flag in _profile(index, profile, len(profiles) > 1)),
        *(["--stronglyTyped"] if tensorrt == "10" else []),
        "--noTF32",
        f"--builderOptimizationLevel={target.builder_optimization_level}",
        f"--timingCacheFile={timing_cache}",
        "--skipInference",
    ]


def _profile(index: int, profile: Profile, numbered: bool) -> list[str]:
    return [
        *([f"--profile={index}"] if numbered else []),
        "--minShapes=" + _shapes({name: shapes.min for name, shapes in profile.items()}),
        "--optShapes=" + _shapes({name: shapes.opt for name, shapes in profile.items()}),
        "--maxShapes=" + _shapes({name: shapes.max for name, shapes in profile.items()}),
    ]


def _shapes(shapes: dict[str, Shape]) -> str:
    """Returns the shapes as trtexec parses them: name:1x2,name:3."""
    return ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in shapes.items())
