"""CPU and memory of a process and its descendants, in the units of SageMaker's endpoint metrics, and the CPU time that
the rest of the machine takes.

CPU is in percent of one core, up to 100 × cores. Memory is in percent of the machine's memory.
"""

import contextlib
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import psutil

SAMPLE_EVERY_S = 1.0
SMOOTH_OVER = 5
"""Number of samples averaged before the highest is taken: a single second is noise."""


@dataclass(frozen=True, slots=True)
class Usage:
    cpu_percent: float
    memory_percent: float


class UsageSampler:
    """Samples in a thread between `start` and `stop`; `highest` is None before the first sample."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._samples: list[Usage] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def highest(self) -> Usage | None:
        samples = list(self._samples)
        if not samples:
            return None
        return Usage(
            highest_average([sample.cpu_percent for sample in samples], SMOOTH_OVER),
            max(sample.memory_percent for sample in samples),
        )

    def _run(self) -> None:
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


def _usage(processes: Iterable[psutil.Process]) -> Usage:
    cpu = memory = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            cpu += process.cpu_percent()
            memory += process.memory_percent()
    return Usage(cpu, memory)
