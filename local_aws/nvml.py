"""Reads the utilisation of this machine's NVIDIA GPUs by NVML, the driver's library (package nvidia-ml-py)."""

import importlib
from functools import cache
from typing import Any

from workloads.instances import hardware, instance_shape


@cache
def library() -> Any | None:
    """Returns the module pynvml, ready to use; None without the package or the driver."""
    try:
        module: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        module.nvmlInit()
    except module.NVMLError:
        return None
    return module


def gpu_count(instance_type: str) -> int:
    """Returns the number of GPUs of a type; 1 for a type with GPUs that is not in the table."""
    shape = instance_shape(instance_type)
    return shape.gpus if shape else int(hardware(instance_type) == "GPU")


def utilization_percent(gpus: int) -> float | None:
    """Returns the share of NVML's last sample period, at most a second, in which a kernel ran, as a sum over the first
    `gpus` GPUs. None without GPUs, or if NVML does not report it.
    """
    if not gpus or (module := library()) is None:
        return None
    try:
        devices = [module.nvmlDeviceGetHandleByIndex(index) for index in range(gpus)]
        return float(sum(module.nvmlDeviceGetUtilizationRates(device).gpu for device in devices))
    except module.NVMLError:
        return None
