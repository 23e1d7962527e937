"""Facts about instance types: hardware, size, GPU driver, and where EC2 offers them.

Sizes and offerings are copies of what EC2 says of itself (instances.json names the source): nothing is asked at run
time, and what the tables do not have is None, with nothing guessed. SageMaker's ml.c5.xlarge is EC2's c5.xlarge.
A family that EC2 does not offer in a region, SageMaker cannot offer there either; that EC2 offers it does not promise
that SageMaker does, nor that each of its sizes is there, nor that there is capacity. Prices are elsewhere.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

Hardware = Literal["x86 CPU", "Arm CPU", "GPU", "Inferentia 1", "Inferentia 2", "Trainium", "Gaudi"]

COMPUTE_CAPABILITIES: Mapping[str, str] = {"g4dn": "7.5", "g5": "8.6", "g6": "8.9", "g6e": "8.9"}
"""Compute capability by family, for the GPUs that targets compile for: T4, A10G, L4 and L40S."""

NEURON_FAMILIES: Mapping[str, str] = {"neuron": "inf1", "neuronx": "inf2"}
"""The family that each Neuron runtime compiles for."""

CANDIDATE_FAMILIES = ("c5", "c7i", "m7i", *COMPUTE_CAPABILITIES, *NEURON_FAMILIES.values())
"""The families among which `candidates` chooses: those that targets are built for, and with more memory or newer."""

_BY_PREFIX: tuple[tuple[str, Hardware], ...] = (
    (r"inf1", "Inferentia 1"),
    (r"inf2", "Inferentia 2"),
    (r"trn\d", "Trainium"),
    (r"dl\d", "Gaudi"),
    (r"(g|p)\d", "GPU"),
    (r"[a-z]+\d+g", "Arm CPU"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceShape:
    vcpus: int
    cores: int
    """Physical cores."""
    memory_gib: float
    gpus: int
    neuron_chips: int
    gpu_memory_gib: float | None = None
    """Memory of all GPUs together."""
    ec2_only: bool = False
    """SageMaker has no type of this name."""

    @property
    def accelerator(self) -> Literal["CPU", "GPU", "Neuron"]:
        """The hardware that a model must have been compiled for."""
        return "GPU" if self.gpus else "Neuron" if self.neuron_chips else "CPU"


def family(instance_type: str) -> str:
    """Returns g4dn for ml.g4dn.xlarge and for g4dn.xlarge."""
    return instance_type.removeprefix("ml.").split(".")[0]


def hardware(instance_type: str) -> Hardware:
    """Returns the kind of processor that runs a model there, derived from the name."""
    return next((kind for prefix, kind in _BY_PREFIX if re.match(prefix, family(instance_type))), "x86 CPU")


def has_bf16(instance_type: str) -> bool:
    """Returns whether the CPU has AVX-512 BF16 or AMX: from the seventh generation of Intel's (c7i) and AMD's (c7a)."""
    return (
        hardware(instance_type) == "x86 CPU" and re.match(r"[a-z]+([7-9]|\d\d)[ai]", family(instance_type)) is not None
    )


def has_accelerator(instance_type: str) -> bool:
    return not hardware(instance_type).endswith("CPU")


def has_local_storage(instance_type: str) -> bool:
    """Returns whether the volume is the host's own NVMe: a `d` after the generation (c5d, g4dn) or always (g5)."""
    name = family(instance_type)
    return re.search(r"\d[a-z]*d", name) is not None or re.match(r"(g5|g6e?|p5e?n?|trn1n?)$", name) is not None


def instance_shape(instance_type: str) -> InstanceShape | None:
    """Returns the size of a type; None for one that is not in the table, or with ml. for one that only EC2 has."""
    entry = _tables()["shapes"]["types"].get(instance_type.removeprefix("ml."))
    shape = InstanceShape(**entry) if entry else None
    return None if shape and shape.ec2_only and instance_type.startswith("ml.") else shape


def candidates(kind: Hardware, copy_gib: float) -> tuple[str, ...]:
    """Returns the smallest SageMaker type of each family with 4 vCPUs and room for the weights on each core or GPU."""
    types = sorted(_tables()["shapes"]["types"].items(), key=lambda item: int(item[1]["vcpus"]))
    smallest: dict[str, str] = {}
    for name, entry in types:
        shape = InstanceShape(**entry)
        room = shape.gpu_memory_gib / shape.gpus if shape.gpu_memory_gib else shape.memory_gib / shape.cores
        if hardware(name) == kind and shape.vcpus >= 4 and room >= copy_gib and not shape.ec2_only:
            smallest.setdefault(family(name), f"ml.{name}")
    return tuple(smallest[name] for name in CANDIDATE_FAMILIES if name in smallest)


def shapes_source() -> str:
    """Returns where the sizes are from."""
    return str(_tables()["shapes"]["source"])


def zones(family: str) -> Mapping[str, tuple[str, ...]] | None:
    """Returns region → ids of the zones that offer the family; None for a family that is not in the table."""
    listed = _tables()["offerings"]["families"].get(family)
    return None if listed is None else {region: tuple(ids) for region, ids in listed.items()}


def regions() -> tuple[str, ...]:
    """Returns the regions whose offerings are known."""
    return tuple(_tables()["offerings"]["regions"])


@cache
def _tables() -> dict[str, Any]:
    return dict(json.loads(Path(__file__).with_name("instances.json").read_text("utf-8")))
