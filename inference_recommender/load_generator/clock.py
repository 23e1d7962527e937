"""The clocks of a run as one value, which tests replace by virtual time, and an alarm finer than an event loop's."""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLOCK_MONOTONIC = 1
"""The clock that `time.perf_counter` reads on Linux."""
TFD_TIMER_ABSTIME = 1
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1


class TimerfdAlarm:
    """An alarm by Linux's timerfd, exact to tens of microseconds. The loop's own timers count whole milliseconds.
    Python has timerfd from 3.13 on.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        """Needs a running loop. Calls `ring` once for each `set`."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._ring = ring
        self._setting = (ctypes.c_long * 4)()  # interval and value, each in seconds and nanoseconds
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._wake)

    def set(self, moment: float) -> None:
        """Rings at a reading of `Clock.now`, or at once if it is past. Replaces an earlier setting."""
        self._setting[2:] = [int(moment), int(moment % 1 * 1e9) or 1]  # A moment of zero would disarm it.
        self._libc.timerfd_settime(self._fd, TFD_TIMER_ABSTIME, ctypes.byref(self._setting), None)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _wake(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # It was set anew between the loop's waking and this.
            return
        self._ring()


def stolen_s() -> float:
    """Returns the CPU time per core that a hypervisor took since boot, or 0 if the kernel does not count it."""
    with Path("/proc/stat").open() as stat:
        fields = stat.readline().split()
    return int(fields[8]) / TICKS_PER_S / CORES if len(fields) > 8 else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """The clocks of one run, all in seconds. `epoch` is common to all generators."""

    now: Callable[[], float] = time.perf_counter
    epoch: Callable[[], float] = time.time
    cpu: Callable[[], float] = time.process_time
    stolen: Callable[[], float] = stolen_s
    alarm: Callable[[Callable[[], None]], Any] = TimerfdAlarm
    """Creates an alarm on `now`, within a running loop."""


SYSTEM_CLOCK = Clock()
