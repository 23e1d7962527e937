"""What a task must know of the EC2 instance type it runs on: vCPUs to reserve, Neuron chips to map."""

from dataclasses import dataclass
from pathlib import Path

from stacks.ecs.errors import UnknownMachine
from workloads.instances import family, instance_shape

FAMILIES = ("inf1", "inf2", "c5", "c6i", "c7i", "m5", "m6i", "m7i")
"""The families that there is an image of ours for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """`kind` is inf1, inf2 or cpu; `devices` are those of its Neuron chips."""

    instance_type: str
    kind: str
    vcpus: int
    devices: tuple[str, ...]


def machine(file: Path, instance_type: str) -> Machine:
    """`file` is the one that names the type. Raises `UnknownMachine`."""
    shape = instance_shape(instance_type)
    if shape is None or instance_type.split(".")[0] not in FAMILIES:
        raise UnknownMachine(file, instance_type, FAMILIES)
    return Machine(
        instance_type=instance_type,
        kind=family(instance_type) if shape.neuron_chips else "cpu",
        vcpus=shape.vcpus,
        devices=tuple(f"/dev/neuron{number}" for number in range(shape.neuron_chips)),
    )
