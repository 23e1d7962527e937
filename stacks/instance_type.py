"""What the name of a SageMaker instance type says about its hardware. Knows no prices, sizes or regions."""

import re


def family(instance_type: str) -> str:
    """g4dn for ml.g4dn.xlarge."""
    return instance_type.split(".")[1]


def has_accelerator(instance_type: str) -> bool:
    """True for GPUs (g, p), Inferentia (inf) and Trainium (trn)."""
    return re.match(r"(g|p|inf|trn)\d", family(instance_type)) is not None


def has_local_storage(instance_type: str) -> bool:
    """True where the volume is the host's own NVMe: a `d` after the generation (c5d, g4dn) or always (g5)."""
    name = family(instance_type)
    return re.search(r"\d[a-z]*d", name) is not None or re.match(r"(g5|g6e?|p5e?n?|trn1n?)$", name) is not None
