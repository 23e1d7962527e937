"""A stand-in for the module pynvml: GPUs whose utilisation is a recording."""

from collections.abc import Sequence
from types import SimpleNamespace


class NVMLError(Exception):
    """What every call of pynvml raises."""


class StandInNvml:
    """Each reading of a GPU is the recording's next one; the last repeats. None stands for an error of NVML."""

    NVMLError = NVMLError

    def __init__(self, *recordings: Sequence[int | None], driver: bool = True) -> None:
        self._recordings, self._driver = [list(each) for each in recordings], driver

    def nvmlInit(self) -> None:  # noqa: N802
        if not self._driver:
            raise NVMLError("NVML Shared Library Not Found")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index >= len(self._recordings):
            raise NVMLError("Invalid Argument")
        return index

    def nvmlDeviceGetUtilizationRates(self, device: int) -> SimpleNamespace:  # noqa: N802
        recording = self._recordings[device]
        percent = recording.pop(0) if len(recording) > 1 else recording[0]
        if percent is None:
            raise NVMLError("Not Supported")
        return SimpleNamespace(gpu=percent, memory=0)
