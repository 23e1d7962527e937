"""What an EC2 instance type has, as far as a task must say so: vCPUs to reserve, Neuron chips to map.

vCPUs and chips as AWS publishes them for each type. All sizes of the families known here have 4 vCPUs for each
"xlarge". Knows no prices and no regions.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stacks.ecs.errors import UnknownMachine

CHIPS: Mapping[str, Mapping[str, int]] = {
    "inf1": {"xlarge": 1, "2xlarge": 1, "6xlarge": 4, "24xlarge": 16},
    "inf2": {"xlarge": 1, "8xlarge": 1, "24xlarge": 6, "48xlarge": 12},
}
CPU_FAMILIES = ("c5", "c6i", "c7i", "m5", "m6i", "m7i")
VCPUS_PER_XLARGE = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """`kind` is inf1, inf2 or cpu; `devices` are those of its Neuron chips."""

    instance_type: str
    kind: str
    vcpus: int
    devices: tuple[str, ...]


def machine(file: Path, instance_type: str) -> Machine:
    """`file` is the one that names the type. Raises `UnknownMachine`."""
    family, _, size = instance_type.partition(".")
    chips = CHIPS.get(family, {}).get(size, 0)
    xlarges = re.fullmatch(r"(\d*)xlarge", size)
    if not xlarges or not (chips or family in CPU_FAMILIES):
        raise UnknownMachine(file, instance_type, [*CHIPS, *CPU_FAMILIES])
    return Machine(
        instance_type=instance_type,
        kind=family if chips else "cpu",
        vcpus=VCPUS_PER_XLARGE * int(xlarges[1] or 1),
        devices=tuple(f"/dev/neuron{number}" for number in range(chips)),
    )
