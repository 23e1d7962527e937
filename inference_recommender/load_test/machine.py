"""What the machine is that the load comes from."""

import os
from pathlib import Path


def description(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """CPU model and cores, for whoever reads what was measured."""
    cores = len(os.sched_getaffinity(0))
    return f"{_cpu_model(cpuinfo)} with {cores} core{'s' if cores != 1 else ''}"


def _cpu_model(cpuinfo: Path) -> str:
    if cpuinfo.exists():
        for line in cpuinfo.read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "unknown CPU"
