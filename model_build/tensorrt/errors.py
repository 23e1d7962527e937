"""Every error of a TensorRT build that a person is meant to read, with its exit code."""

from collections.abc import Sequence
from pathlib import Path

from workloads import ProjectError


class NoGpu(ProjectError):
    """This machine cannot build engines, and how to have them built."""

    exit_code = 3

    def __init__(self, workload: str, target: str, lacks: str) -> None:
        super().__init__(
            f"{workload} for {target} needs a machine with an NVIDIA GPU and TensorRT: {lacks}. "
            "An engine is built on the GPU it will run on. Build it on one with "
            f"`python -m model_build build {workload} --target {target} --on sagemaker`."
        )


class WrongGpu(ProjectError):
    exit_code = 3

    def __init__(self, target: str, gpu: str, capability: str, allowed: Sequence[str]) -> None:
        super().__init__(
            f"targets.{target}: this machine's {gpu} has compute capability {capability}, and an engine built here "
            f"would load nowhere else. The target's instance types have {' and '.join(allowed)}. "
            "Build on one of them, or change targets." + target + ".instance_types."
        )


class UnknownTensorRt(ProjectError):
    exit_code = 3

    def __init__(self, program: str, said: str) -> None:
        super().__init__(
            f"{program} does not say a TensorRT version that this project has a command for. "
            f"Got: {said!r}. Allowed: 10.x and 11.x. Build in the Triton image that will serve the engine."
        )


class NoBindings(ProjectError):
    """trtexec is there, and what runs its engines for the parity gate is not."""

    exit_code = 3

    def __init__(self, problem: str, tensorrt: str | None) -> None:
        version = f"=={tensorrt}.*" if tensorrt else ""
        super().__init__(
            f"The parity gate runs engines from Python, and {problem}. A plan loads only in the TensorRT that built "
            f"it: install that very version with `pip install 'tensorrt{version}' cuda-bindings`."
        )


class EngineFailed(ProjectError):
    """The engines do not load or do not run on this machine's GPU."""

    exit_code = 3

    def __init__(self, workload: str, target: str, reason: str) -> None:
        super().__init__(
            f"The engines of {workload} for {target} cannot be run here: {reason.removesuffix('.')}. "
            "They run on a machine with the GPU and the TensorRT they were built with."
        )


class TrtexecFailed(ProjectError):
    """trtexec's own last words; all of them are in the log."""

    exit_code = 3

    def __init__(self, graph: Path, status: int, log: Path, last_lines: Sequence[str]) -> None:
        super().__init__(
            "\n".join(
                [
                    f"trtexec could not build an engine from {graph.name}: it ended with {status}. Its last lines:",
                    *(f"  {line}" for line in last_lines),
                    f"All of its output is in {log}.",
                ]
            )
        )
