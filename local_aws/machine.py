"""Describes this machine, and decides which instance types it can replace.

Its CPU replaces every type without a chip, and an NVIDIA GPU of this machine every type with a GPU. Types with an
Inferentia chip are rejected, and so are types with a GPU if this machine has none.
"""

import os
import re
import shutil
import subprocess
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
    """Returns the reason why this machine cannot replace `instance_type`, or None."""
    kind = hardware(instance_type)
    if (chip := _CHIPS.get(kind)) is None or (kind == "GPU" and gpu() is not None):
        return None
    return (
        f"{instance_type} has {chip} and this local account serves on the CPU only: choose a CPU instance type here, "
        f"or use a real AWS account."
    )


@cache
def description() -> str:
    """Returns the CPU's model, the number of cores and the GPU."""
    cores = len(os.sched_getaffinity(0))
    parts = [f"{_cpu_model()} with {cores} core{'s' if cores != 1 else ''}", gpu()]
    return " and ".join(part for part in parts if part)


@cache
def gpu() -> str | None:
    """Returns the name of the first NVIDIA GPU that the driver's own program lists; None where there is none."""
    if (program := shutil.which("nvidia-smi")) is None:
        return None
    asked = [program, "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    names = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return names[0] if names and done.returncode == 0 else None


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown CPU"


def tag_value(text: str) -> str:
    """Reduces `text` to the characters that a tag's value may have."""
    return re.sub(r"[^\w\s.:/=+\-@]", "", text)[:256].strip()
