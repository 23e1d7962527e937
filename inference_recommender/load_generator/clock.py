"""Wakes an event loop at a moment of `time.perf_counter`, to within tens of microseconds.

The loop's own timers count whole milliseconds, which at a thousand requests a second is the gap between two of them.
This is Linux's timerfd; Python has it from 3.13 on, until then it is the C library's.
"""

import asyncio
import ctypes
import os
from collections.abc import Callable

CLOCK_MONOTONIC = 1
"""What `time.perf_counter` reads on Linux."""
TFD_TIMER_ABSTIME = 1


class _Moment(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _Setting(ctypes.Structure):
    _fields_ = [("interval", _Moment), ("value", _Moment)]


class Alarm:
    def __init__(self, ring: Callable[[], None]) -> None:
        """Within a running loop. `ring` is called once for each `set`."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._ring = ring
        self._setting = _Setting()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._wake)

    def set(self, moment: float) -> None:
        """Ring at `moment`, at once if it is past; whatever was set before is forgotten."""
        value = self._setting.value
        value.seconds = int(moment)
        value.nanoseconds = int(moment % 1 * 1e9) or 1  # A moment of zero would disarm it.
        self._libc.timerfd_settime(self._fd, TFD_TIMER_ABSTIME, ctypes.byref(self._setting), None)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _wake(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # Set anew between the loop's waking and this.
            return
        self._ring()
