"""Describes this machine, and decides which instance types it can replace.

Its CPU replaces every type without a chip, and an NVIDIA GPU of this machine every type with a GPU. Types with an
Inferentia chip are rejected, and so are types with a GPU if this machine has none. CPU usage is in percent of one core,
memory usage in percent of the machine's memory, as in SageMaker's endpoint metrics.
"""

import contextlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import psutil

from local_aws.nvml import gpu_count
from workloads.instances import Hardware, hardware

_CHIPS: Mapping[Hardware, str] = {
    "GPU": "an NVIDIA GPU",
    "Inferentia 1": "an AWS Inferentia chip",
    "Inferentia 2": "an AWS Inferentia chip",
    "Trainium": "an AWS Trainium chip",
    "Gaudi": "a Gaudi chip",
}


def refusal(instance_type: str) -> str | None:
    """Returns the reason why this machine cannot replace `instance_type`, or None."""
    kind = hardware(instance_type)
    if (chip := _CHIPS.get(kind)) is None:
        return None
    if kind == "GPU" and gpus():
        needed, known = gpu_count(instance_type), len(gpus())
        short = (
            f"{instance_type} has {needed} NVIDIA GPUs and this machine has {known}: choose a smaller instance type."
        )
        return short if needed > known else None
    return (
        f"{instance_type} has {chip} and this local account serves on the CPU only: choose a CPU instance type here, "
        f"or use a real AWS account."
    )


@cache
def description() -> str:
    """Returns the CPU's model, the number of cores and the GPU."""
    cores = len(os.sched_getaffinity(0))
    return " and ".join([f"{_cpu_model()} with {cores} core{'s' if cores != 1 else ''}", *gpus()])


@cache
def gpus() -> tuple[str, ...]:
    """Returns the names of the NVIDIA GPUs that the driver's own program lists."""
    if (program := shutil.which("nvidia-smi")) is None:
        return ()
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip()) if done.returncode == 0 else ()


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown CPU"


def tag_value(text: str) -> str:
    """Reduces `text` to the characters that a tag's value may have."""
    return re.sub(r"[^\w\s.:/=+\-@]", "", text)[:256].strip()


SAMPLE_EVERY_S = 1.0
SMOOTH_OVER = 5
"""Number of samples averaged before the highest is taken: a single second is noise."""


class UsageSampler(threading.Thread):
    """Samples a process and its descendants in a thread between `start` and `stop`."""

    def __init__(self, pid: int) -> None:
        super().__init__(name="usage", daemon=True)
        self._pid = pid
        self._samples: list[tuple[float, float]] = []
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    @property
    def highest(self) -> tuple[float, float] | None:
        """Returns the highest CPU and memory usage, or None before the first sample."""
        if not (samples := list(self._samples)):
            return None
        cpu, memory = zip(*samples, strict=True)
        return highest_average(cpu, SMOOTH_OVER), max(memory)

    def run(self) -> None:
        known: dict[int, psutil.Process] = {}
        with contextlib.suppress(psutil.NoSuchProcess):
            while True:
                self._know_all(known)
                stopping = self._stopping.wait(SAMPLE_EVERY_S)
                if not stopping or not self._samples:  # a run of less than a second has a sample, too
                    self._samples.append(_usage(known.values()))
                if stopping:
                    return

    def _know_all(self, known: dict[int, psutil.Process]) -> None:
        root = known.get(self._pid) or psutil.Process(self._pid)
        for process in [root, *root.children(recursive=True)]:
            if process.pid not in known:
                known[process.pid] = process
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.cpu_percent()  # the first call only starts the measurement


class OtherWork:
    """The CPU time that other programs than this account and its children take from a measurement."""

    def __init__(self) -> None:
        self._machine_s, self._own_s = _machine_cpu_s(), _own_cpu_s()

    def seconds(self) -> float:
        """Returns the CPU seconds of other programs since the last call, with the time that a hypervisor stole."""
        machine_s, own_s = _machine_cpu_s(), _own_cpu_s()
        before = sum(self._own_s.get(pid, 0.0) for pid in own_s)
        others_s = machine_s - self._machine_s - (sum(own_s.values()) - before)
        self._machine_s, self._own_s = machine_s, own_s
        return max(others_s, 0.0)


def _machine_cpu_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def _own_cpu_s() -> dict[int, float]:
    own: dict[int, float] = {}
    root = psutil.Process()
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            own[process.pid] = times.user + times.system
    return own


def highest_average(values: Sequence[float], width: int) -> float:
    """Returns the highest mean of `width` values in a row, or of all values if there are fewer."""
    width = min(width, len(values))
    return max(sum(values[i : i + width]) / width for i in range(len(values) - width + 1))


def _usage(processes: Iterable[psutil.Process]) -> tuple[float, float]:
    cpu = memory = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            cpu += process.cpu_percent()
            memory += process.memory_percent()
    return cpu, memory
