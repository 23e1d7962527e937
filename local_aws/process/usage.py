"""Samples the CPU and memory of a process and all its descendants, in the units of SageMaker's endpoint metrics.

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
