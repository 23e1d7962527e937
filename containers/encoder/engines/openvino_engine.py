"""Runs the compiled model on OpenVINO, on an x86 CPU: an `Engine` for one call at a time."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openvino
from numpy.typing import NDArray

from ..settings import Settings
from .engine import LacksInstructionSet

CPUINFO = Path("/proc/cpuinfo")
PRECISIONS = {"fp32": "f32", "bf16": "bf16"}


class OpenVinoEngine:
    def __init__(self, file: Path, settings: Settings) -> None:
        check_cpu(settings.instruction_sets, CPUINFO)
        options = {
            "INFERENCE_PRECISION_HINT": PRECISIONS[settings.precision],
            "INFERENCE_NUM_THREADS": settings.threads,
            "NUM_STREAMS": 1,
            "ENABLE_HYPER_THREADING": True,  # else the threads are at most the physical cores
            # Each model instance is a process, and all of them would pin their threads to the same cores.
            "ENABLE_CPU_PINNING": False,
        }
        self._request = openvino.Core().compile_model(str(file), "CPU", options).create_infer_request()
        self._outputs = settings.graph_outputs

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        given = self._request.infer(dict(tensors), share_inputs=True)
        return {name: given[name] for name in self._outputs}


def check_cpu(instruction_sets: Sequence[str], cpuinfo: Path) -> None:
    """Raises `LacksInstructionSet` if the CPU has none of these flags. An empty list is any CPU."""
    if instruction_sets and not set(instruction_sets) & set(cpuinfo.read_text("utf-8").split()):
        raise LacksInstructionSet(
            f"The CPU ({cpu_name(cpuinfo)}) has none of the instruction sets that this model needs: "
            f"{', '.join(instruction_sets)}. Use an instance type that has one, such as ml.c7i.xlarge, or build the "
            'target with precision = "int8" or "fp32".'
        )


def cpu_name(cpuinfo: Path) -> str:
    name = re.search(r"^model name\s*: (.+)$", cpuinfo.read_text("utf-8"), re.MULTILINE)
    return name[1] if name else "unknown model"
