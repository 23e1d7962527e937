"""What the name of an instance type, with or without "ml.", says of its hardware. Knows no prices, sizes or regions."""

import re
from typing import Literal

Hardware = Literal["x86 CPU", "Arm CPU", "GPU", "Inferentia 1", "Inferentia 2", "Trainium"]

_BY_PREFIX: tuple[tuple[str, Hardware], ...] = (
    (r"inf1", "Inferentia 1"),
    (r"inf2", "Inferentia 2"),
    (r"trn\d", "Trainium"),
    (r"(g|p)\d", "GPU"),
    (r"[a-z]+\d+g", "Arm CPU"),
)


def family(instance_type: str) -> str:
    """g4dn for ml.g4dn.xlarge."""
    return instance_type.removeprefix("ml.").split(".")[0]


def hardware(instance_type: str) -> Hardware:
    """What a model computes on there."""
    return next((kind for prefix, kind in _BY_PREFIX if re.match(prefix, family(instance_type))), "x86 CPU")


def has_accelerator(instance_type: str) -> bool:
    return not hardware(instance_type).endswith("CPU")


def has_local_storage(instance_type: str) -> bool:
    """True where the volume is the host's own NVMe: a `d` after the generation (c5d, g4dn) or always (g5)."""
    name = family(instance_type)
    return re.search(r"\d[a-z]*d", name) is not None or re.match(r"(g5|g6e?|p5e?n?|trn1n?)$", name) is not None
