"""Builds engines with the trtexec of this machine, for the GPU of this machine; without trtexec, with `tensorrt`.

In: a graph, its profiles, a target. Out: an engine file. `Toolchain.find` reports what a machine lacks. TensorRT's
version is read from trtexec's own banner, the GPU from nvidia-smi. The Python package must be of the same version: the
parity gate runs with it what trtexec built. A timing cache for each GPU and TensorRT version makes later builds
shorter. trtexec's whole output lies beside the engine as a log. `pip install tensorrt-cu12` has no trtexec: there the
package builds, without a timing cache and a log.

Flags are those of samples/common/sampleOptions.cpp of NVIDIA/TensorRT: its tag v10.4.0, which has them all, its last
10.x sources, and commit d5883286 (11.x). They differ in one: TensorRT 10 takes types from the graph only with
`--stronglyTyped`, TensorRT 11 always does. So the graph decides precision, and no command has `--fp16`. `--noTF32`
keeps full fp32 on Ampere (A10G). Engines are not `--versionCompatible`: they are built in the image that serves them.

Both programs are expected to print:

    &&&& RUNNING TensorRT.trtexec [TensorRT v100400] [b26] # trtexec --help
    Tesla T4, 7.5, 535.104.05
"""

import importlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from containers.text2text.tensorrt_plan import import_tensorrt
from model_build.progress import Progress, silent
from model_build.tensorrt.builder import BuilderRefused, build_plan
from model_build.tensorrt.profiles import Profile
from workloads import TensorRtTarget, Unavailable

Major = Literal["10", "11"]

# NVIDIA's images have it in the second place when it is not on PATH.
TRTEXEC = ("trtexec", "/usr/src/tensorrt/bin/trtexec")
GPU_QUERY = ("--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader")
BANNER = re.compile(r"&&&& RUNNING TensorRT\.trtexec \[TensorRT v(\d+)\](?: \[b(\d+)\])?")
PASSED = "&&&& PASSED TensorRT.trtexec"
LAST_LINES = 15


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
    shapes: list[str] = []
    for index, profile in enumerate(profiles):
        shapes += [f"--profile={index}"] if len(profiles) > 1 else []
        for end in ("min", "opt", "max"):
            sizes = (f"{name}:{'x'.join(map(str, getattr(each, end)))}" for name, each in profile.items())
            shapes.append(f"--{end}Shapes={','.join(sizes)}")
    return [
        program,
        f"--onnx={graph}",
        f"--saveEngine={engine}",
        *shapes,
        *(["--stronglyTyped"] if tensorrt == "10" else []),
        "--noTF32",
        f"--builderOptimizationLevel={target.builder_optimization_level}",
        f"--timingCacheFile={timing_cache}",
        "--skipInference",
    ]


class MissingTool(Unavailable):
    """This machine has no GPU or no TensorRT to build with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Toolchain:
    """The tools and the GPU that this machine builds with.

    `tensorrt` is major.minor.patch.build, without the build where trtexec does not print it. `trtexec` is None if the
    Python package builds.
    """

    trtexec: str | None
    tensorrt: str
    major: Major
    gpu: str
    compute_capability: str
    driver: str

    @classmethod
    def here(cls) -> "Toolchain":
        """Raises `MissingTool` with every missing piece, and `Unavailable` for versions that do not match."""
        program = next((found for name in TRTEXEC if (found := shutil.which(name))), None)
        lacks = []
        try:
            gpu, capability, driver = _gpu()
        except MissingTool as error:
            lacks.append(str(error))
        if program is None and (problem := _import_error()):
            lacks.append(f"trtexec is neither on PATH nor {TRTEXEC[1]}, and Python cannot build instead ({problem})")
        if lacks:
            raise MissingTool("; ".join(lacks))
        tensorrt, major = _version(program) if program else _package_version()
        _check_bindings(program, tensorrt)
        return cls(
            trtexec=program, tensorrt=tensorrt, major=major, gpu=gpu, compute_capability=capability, driver=driver
        )

    @classmethod
    def find(cls, workload: str, target_name: str, target: TensorRtTarget) -> "Toolchain":
        """Raises `Unavailable` with what this machine lacks to build the target's engines."""
        try:
            toolchain = cls.here()
        except MissingTool as error:
            raise Unavailable(
                f"{workload} for {target_name} needs a machine with an NVIDIA GPU and TensorRT: {error}. "
                "An engine is built on the GPU it will run on. Build it on one with "
                f"`python -m model_build build {workload} --target {target_name} --on sagemaker`."
            ) from error
        if toolchain.compute_capability not in target.compute_capabilities:
            raise Unavailable(
                f"targets.{target_name}: this machine's {toolchain.gpu} has compute capability "
                f"{toolchain.compute_capability}, and an engine built here would load nowhere else. The target's "
                f"instance types have {' and '.join(target.compute_capabilities)}. "
                f"Build on one of them, or change targets.{target_name}.instance_types."
            )
        return toolchain

    def record(self) -> dict[str, str]:
        """Returns the record for artifact.json. Engines load where all of it but the driver is the same."""
        return {key: getattr(self, key) for key in ("tensorrt", "gpu", "compute_capability", "driver")}


def compile_engine(
    graph: Path,
    engine: Path,
    profiles: Sequence[Profile],
    target: TensorRtTarget,
    toolchain: Toolchain,
    timing_caches: Path,
    progress: Progress = silent,
) -> None:
    """Writes `engine` and trtexec's log. Raises `Unavailable` with the builder's last messages."""
    unfinished, log = engine.with_name(f".{engine.name}.part"), engine.with_name(f"{engine.name}.log")
    progress(f"Building {engine.name} with TensorRT {toolchain.tensorrt} on {toolchain.gpu}")
    if toolchain.trtexec is None:
        try:
            unfinished.write_bytes(build_plan(import_tensorrt(), graph, profiles, target))
        except BuilderRefused as refused:
            raise Unavailable(f"TensorRT could not build an engine from {graph.name}: {refused}") from refused
        unfinished.replace(engine)
        return
    timing_caches.mkdir(parents=True, exist_ok=True)
    cache = timing_caches / f"{toolchain.compute_capability}.{toolchain.tensorrt}.cache"
    program, major = toolchain.trtexec, toolchain.major
    words = command(graph, unfinished, profiles, target, tensorrt=major, timing_cache=cache, program=program)
    with log.open("w") as output:
        done = subprocess.run(words, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
    lines = log.read_text(errors="replace").splitlines()
    if not done.returncode and unfinished.exists() and any(line.startswith(PASSED) for line in lines):
        unfinished.replace(engine)
        return
    unfinished.unlink(missing_ok=True)
    raise Unavailable(
        "\n".join(
            [
                f"trtexec could not build an engine from {graph.name}: it ended with {done.returncode}. "
                "Its last lines:",
                *(f"  {line}" for line in lines[-LAST_LINES:]),
                f"All of its output is in {log}.",
            ]
        )
    )


def _gpu() -> tuple[str, str, str]:
    """Returns name, compute capability and driver of the first GPU, which is the one that trtexec takes."""
    program = shutil.which("nvidia-smi")
    if program is None:
        raise MissingTool("nvidia-smi is not on PATH")
    done = subprocess.run([program, *GPU_QUERY], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    fields = [field.strip() for field in lines[0].split(",")] if lines else []
    if done.returncode or len(fields) != 3:
        output = (done.stderr or done.stdout).strip() or "nothing"
        raise MissingTool(f"nvidia-smi ended with {done.returncode} and printed {output!r}")
    name, capability, driver = fields
    return name, capability, driver


def _version(program: str) -> tuple[str, Major]:
    """Reads TensorRT's version from the banner, which every run prints: v100400 and b26 are 10.4.0.26.

    TensorRT compares all four parts ("expecting library version 8.6.1.2 got 8.6.1.6", NVIDIA/TensorRT #3071).
    """
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
    banner = BANNER.search(done.stdout)
    number, build = (int(banner[1]), banner[2]) if banner else (0, None)
    for major in get_args(Major):
        if number // 10000 == int(major):
            parts = (major, str(number // 100 % 100), str(number % 100), build)
            return ".".join(part for part in parts if part is not None), major
    output = (done.stdout or done.stderr).strip().partition("\n")[0]
    raise Unavailable(
        f"{program} prints no TensorRT version that this project has a command for. "
        f"Got: {output!r}. Allowed: 10.x and 11.x. Build in the Triton image that will serve the engine."
    )


def no_bindings(problem: str, tensorrt: str | None) -> Unavailable:
    """Returns the error for missing Python packages that run the engines for the parity gate."""
    version = f"=={tensorrt}.*" if tensorrt else ""
    return Unavailable(
        f"The parity gate runs engines from Python, and {problem}. A plan loads only in the TensorRT that built "
        f"it: install that very version with `pip install 'tensorrt{version}' cuda-bindings`."
    )


def _package_version() -> tuple[str, Major]:
    installed = str(import_tensorrt().__version__)
    for major in get_args(Major):
        if installed.split(".")[0] == major:
            return ".".join(installed.split(".")[:4]), major
    raise Unavailable(f"The Python package tensorrt is {installed}. Allowed: 10.x and 11.x. Install one of them.")


def _import_error() -> ImportError | None:
    """Returns why Python cannot run engines."""
    try:
        import_tensorrt()
        importlib.import_module("cuda.bindings.runtime")
    except ImportError as error:
        return error
    return None


def _check_bindings(program: str | None, tensorrt: str) -> None:
    """Checks the Python packages before an hour of building."""
    if error := _import_error():
        raise no_bindings(f"they cannot be imported ({error})", tensorrt) from error
    installed = str(import_tensorrt().__version__)
    built_with = tensorrt.split(".")
    if installed.split(".")[: len(built_with)] != built_with:
        raise no_bindings(f"the package is TensorRT {installed}, but {program} is {tensorrt}", tensorrt)
