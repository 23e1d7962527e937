"""Stretches of a run in which this machine stalled: the event loop woke late, or a hypervisor took the cores."""

import asyncio
from collections.abc import Sequence

import numpy as np

from inference_recommender.capacity.statistics import Bools, Floats
from inference_recommender.load_generator.clock import Clock

TICK_S = 0.01
LATE_S = 0.02
"""A tick that comes later than this marks a stall, from the tick before it."""
STEAL_WINDOW_S = 0.5
MAX_STEAL_SHARE = 0.1
"""Above this share of the cores' time, stolen CPU marks a stall."""
NO_STALLS: Floats = np.zeros((0, 2))


class StallWatch:
    """Ticks in the running event loop and records its stalls, on the run's clock."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.now
        self._stolen = clock.stolen
        self._started = 0.0
        self._stalls: list[tuple[float, float]] = []
        self._last_tick = 0.0
        self._window_start = 0.0
        self._stolen_before = 0.0
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
            self._add(self._last_tick, now)
        self._last_tick = now
        windows = (now - self._window_start) // STEAL_WINDOW_S
        if windows:
            end, stolen = self._window_start + windows * STEAL_WINDOW_S, self._stolen()
            if stolen - self._stolen_before > MAX_STEAL_SHARE * (end - self._window_start):
                self._add(self._window_start, end)
            self._window_start, self._stolen_before = end, stolen

    def _add(self, start: float, end: float) -> None:
        while self._stalls and self._stalls[-1][1] >= start:
            earlier = self._stalls.pop()
            start, end = min(start, earlier[0]), max(end, earlier[1])
        self._stalls.append((start, end))


def merge_stalls(stalls_s: Sequence[Floats]) -> Floats:
    """Returns the union of the stalls of several generators, as `StallWatch.stalls_s` does."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(map(tuple, np.concatenate(stalls_s))):
        if merged and merged[-1][1] >= start:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return np.array(merged, dtype=np.float64).reshape(-1, 2)


def stalled_between(stalls_s: Floats, start_s: float, end_s: float) -> float:
    """Returns the seconds of [start_s, end_s] that lie in stalls."""
    overlap = np.minimum(stalls_s[:, 1], end_s) - np.maximum(stalls_s[:, 0], start_s)
    return float(np.maximum(overlap, 0.0).sum())


def touches_stall(stalls_s: Floats, start_s: Floats, end_s: Floats) -> Bools:
    """Returns for each stretch whether it overlaps with a stall."""
    first_after = np.searchsorted(stalls_s[:, 1], start_s)
    return np.append(stalls_s[:, 0], np.inf)[first_after] <= end_s
