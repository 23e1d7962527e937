"""Describes this machine, and decides which instance types it can stand in for.

It refuses types with a GPU or an Inferentia chip rather than imitate them; its own CPU answers for every other type.
Instance types come from botocore's service model, because moto's list is old.
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import botocore.session

from workloads.instances import Hardware, hardware

_CHIPS: Mapping[Hardware, str] = {
    "GPU": "an NVIDIA GPU",
    "Inferentia 1": "an AWS Inferentia chip",
    "Inferentia 2": "an AWS Inferentia chip",
    "Trainium": "an AWS Trainium chip",
    "Gaudi": "a Gaudi chip",
}


@cache
def instance_types() -> frozenset[str]:
    """Returns every instance type that a production variant may have."""
    service = botocore.session.get_session().get_service_model("sagemaker")
    return frozenset(service.shape_for("ProductionVariantInstanceType").metadata["enum"])


def refusal(instance_type: str) -> str | None:
    """Returns in one sentence why this machine cannot stand in for `instance_type`, or None where it can."""
    if (chip := _CHIPS.get(hardware(instance_type))) is None:
        return None
    return (
        f"{instance_type} has {chip} and this local account serves on the CPU alone: choose a CPU instance type here, "
        f"or use a real AWS account."
    )


@cache
def description() -> str:
    """Returns the CPU's model and the number of cores, for readers of what was measured here."""
    cores = len(os.sched_getaffinity(0))
    return f"{_cpu_model()} with {cores} core{'s' if cores != 1 else ''}"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown CPU"


def tag_value(text: str) -> str:
    """Reduces `text` to the characters that a tag's value may have."""
    return re.sub(r"[^\w\s.:/=+\-@]", "", text)[:256].strip()
