"""vCPUs, memory, GPUs and Inferentia chips of an instance type, from a committed table (`instance_shapes.json`).

SageMaker's ml.c5.xlarge is EC2's c5.xlarge. A type that the table does not have is None, with nothing guessed.
"""

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceShape:
    vcpus: int
    memory_gib: float
    gpus: int
    neuron_chips: int

    @property
    def accelerator(self) -> str:
        """What a model must have been compiled for."""
        return "GPU" if self.gpus else "Neuron" if self.neuron_chips else "CPU"


def instance_shape(instance_type: str) -> InstanceShape | None:
    found = _table()["types"].get(instance_type.removeprefix("ml."))
    return InstanceShape(**found) if found else None


def source() -> str:
    """Where the table is from, and of when."""
    return f"{_table()['source']} ({_table()['collected']})"


@functools.cache
def _table() -> dict[str, Any]:
    text = resources.files("inference_recommender.experiment").joinpath("instance_shapes.json").read_text("utf-8")
    return dict(json.loads(text))
