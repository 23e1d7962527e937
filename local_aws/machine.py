"""What this machine is, and which instance types it can stand in for.

A GPU or an Inferentia chip is refused rather than imitated; every other type is answered by the machine's own CPU.
Instance types come from botocore's service model, the authority: moto's list is old.
"""

import os
import re
from functools import cache
from pathlib import Path

import botocore.session

# Told by the family's first letters: a g that comes after a digit (t4g, m6g) is a Graviton CPU, no GPU.
_ACCELERATED = re.compile(r"^ml\.(?P<family>p\d|g\d|inf\d|trn\d|dl\d)")
_CHIPS = {
    "p": "an NVIDIA GPU",
    "g": "an NVIDIA GPU",
    "inf": "an AWS Inferentia chip",
    "trn": "an AWS Trainium chip",
    "dl": "a Gaudi chip",
}


@cache
def instance_types() -> frozenset[str]:
    """Every instance type that a production variant may have."""
    service = botocore.session.get_session().get_service_model("sagemaker")
    return frozenset(service.shape_for("ProductionVariantInstanceType").metadata["enum"])


def refusal(instance_type: str) -> str | None:
    """Why this machine cannot stand in for `instance_type`, in one sentence, or None when it can."""
    if (match := _ACCELERATED.match(instance_type)) is None:
        return None
    chip = _CHIPS[match["family"].rstrip("0123456789")]
    return (
        f"{instance_type} has {chip} and this local account serves on the CPU alone: choose a CPU instance type here, "
        f"or use a real AWS account."
    )


@cache
def description() -> str:
    """CPU model and core count, for whoever reads what was measured here."""
    cores = len(os.sched_getaffinity(0))
    return f"{_cpu_model()} with {cores} core{'s' if cores != 1 else ''}"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown CPU"


def tag_value(text: str) -> str:
    """`text` in the characters that a tag's value may have."""
    return re.sub(r"[^\w\s.:/=+\-@]", "", text)[:256].strip()
