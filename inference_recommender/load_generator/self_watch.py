"""Whether the generator itself limited what it measured: its CPU time, the lateness of its clock, and stalls.

A stall is a stretch in which the event loop woke late, or a hypervisor took the cores.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inference_recommender.capacity.statistics import MAX_CPU_SHARE, MAX_LAG_MS, Bools, Floats
from inference_recommender.load_generator.clock import Clock

LAGGED = "generator lagged"
"""The beginning of every complaint."""
STALLED = "machine stalled"
TICK_S, LATE_S = 0.01, 0.02
"""A tick that comes later than this marks a stall, from the tick before it."""
STEAL_WINDOW_S, MAX_STEAL_SHARE = 0.5, 0.1
"""Above this share of the cores' time, stolen CPU marks a stall."""
NO_STALLS: Floats = np.zeros((0, 2))


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfWatch:
    cpu_share: float
    """CPU time over the run's duration. 1 is a whole core."""
    lag_ms: float
    """90th percentile of the delay of the run's ticks and of an open loop's requests, outside stalls."""

    @classmethod
    def of(cls, cpu_s: float, wall_s: float, lags_s: Floats) -> "SelfWatch":
        """Returns the watch of a run of `wall_s` seconds that used `cpu_s` seconds of CPU."""
        lag_ms = float(np.percentile(lags_s, 90)) * 1000 if len(lags_s) else 0.0
        return cls(cpu_share=cpu_s / wall_s if wall_s else 0.0, lag_ms=lag_ms)

    def complaint(self) -> str | None:
        """Returns why the run allows no verdict, or None."""
        if self.cpu_share > MAX_CPU_SHARE:
            return f"{LAGGED}: it used {self.cpu_share:.0%} of its core, so it was the bottleneck"
        if self.lag_ms > MAX_LAG_MS:
            return f"{LAGGED}: its own clock was {self.lag_ms:.0f} ms late"
        return None


class StallWatch:
    """Ticks in the running event loop and records its stalls, on the run's clock."""

    def __init__(self, clock: Clock) -> None:
        self._now, self._stolen = clock.now, clock.stolen
        self._stalls: list[tuple[float, float]] = []
        self._started = self._last_tick = self._window_start = self._stolen_before = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, started: float) -> None:
        """Starts ticking. `started` is the moment from which `stalls_s` counts."""
        self._started = self._last_tick = self._window_start = started
        self._stolen_before = self._stolen()
        self._tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._look()

    def stalls_s(self) -> Floats:
        """Returns the stalls until now: shape (k, 2), start and end in seconds since the start, ascending."""
        if self._timer is not None and not self._timer.cancelled():
            self._look()
        return np.array(self._stalls, dtype=np.float64).reshape(-1, 2) - self._started

    def _tick(self) -> None:
        self._look()
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _look(self) -> None:
        now = self._now()
        if now - self._last_tick > TICK_S + LATE_S:
            _add(self._stalls, self._last_tick, now)
        self._last_tick = now
        windows = (now - self._window_start) // STEAL_WINDOW_S
        if windows:
            end, stolen = self._window_start + windows * STEAL_WINDOW_S, self._stolen()
            if stolen - self._stolen_before > MAX_STEAL_SHARE * (end - self._window_start):
                _add(self._stalls, self._window_start, end)
            self._window_start, self._stolen_before = end, stolen


def _add(stalls: list[tuple[float, float]], start: float, end: float) -> None:
    """Appends a stall, or joins it with the latest ones that it touches."""
    while stalls and stalls[-1][1] >= start:
        earlier = stalls.pop()
        start, end = min(start, earlier[0]), max(end, earlier[1])
    stalls.append((start, end))


def merge_stalls(stalls_s: Sequence[Floats]) -> Floats:
    """Returns the union of the stalls of several generators, as `StallWatch.stalls_s` does."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(map(tuple, np.concatenate(stalls_s))):
        _add(merged, start, end)
    return np.array(merged, dtype=np.float64).reshape(-1, 2)


def stalled_between(stalls_s: Floats, start_s: float, end_s: float) -> float:
    """Returns the seconds of [start_s, end_s] that lie in stalls."""
    overlap = np.minimum(stalls_s[:, 1], end_s) - np.maximum(stalls_s[:, 0], start_s)
    return float(np.maximum(overlap, 0.0).sum())


def touches_stall(stalls_s: Floats, start_s: Floats, end_s: Floats) -> Bools:
    """Returns for each stretch whether it overlaps with a stall."""
    first_after = np.searchsorted(stalls_s[:, 1], start_s)
    return np.append(stalls_s[:, 0], np.inf)[first_after] <= end_s
