"""A run: sends its load and reports a window every `window_s`, until something ends it.

`Run.drive` returns why it ended: "traffic ended", a stopping condition's name, "stopped", or "target failed: …". The
stopping conditions are the API's. The service applies them to whole minutes, a run here to intervals of `INTERVAL_S`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from inference_recommender.capacity.closed_loop import INTERVAL_S
from inference_recommender.capacity.statistics import Floats, samples_needed
from inference_recommender.load_generator.clock import SYSTEM_CLOCK, Clock
from inference_recommender.load_generator.load_plan import LoadPlan, StoppingConditions
from inference_recommender.load_generator.loops import load
from inference_recommender.load_generator.records import TIMED_OUT, RequestLog, SentRequests, histogram, percentiles
from inference_recommender.load_generator.requests import Outgoing
from inference_recommender.load_generator.self_watch import StallWatch, stalled_between, touches_stall

DEAD_WINDOWS = 2
"""After this many windows with failures and no success between them, the target has failed."""
DRAIN_S, DRAIN_FACTOR = 5.0, 2.0
"""Seconds for open requests after the end of a run. If it was not stopped, `DRAIN_FACTOR` times the slowest answer."""
TRAFFIC_ENDED = "traffic ended"
FLAT_GROWTH = 0.02
"""More users with less growth of the rate than this, twice in a row, is flat."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """The requests that finished in [start_s, end_s) of the run."""

    start_s: float
    end_s: float
    started_at: float
    """Beginning of the window, in seconds since the epoch."""
    users: int
    invocations: int
    errors: int
    latency_ms: dict[str, float | None]
    stalled_s: float
    histogram: tuple[tuple[float, int], ...]
    """(latency in ms, count) of the successful requests: `records.histogram`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A stretch of the run to which stopping conditions are applied: mean users and rate of successes."""

    users: float
    invocations_per_minute: float
    latencies_ms: Floats
    """One entry per successful request that no stall of the machine delayed."""


def reason_to_stop(conditions: StoppingConditions, intervals: Sequence[Interval]) -> str | None:
    """Returns the condition that `intervals` (disjoint, equally long, the latest last) meet, or None."""
    if not intervals:
        return None
    latest, limit = intervals[-1], conditions.latency
    if conditions.max_invocations and latest.invocations_per_minute >= conditions.max_invocations:
        return "max invocations"
    enough = limit is not None and len(latest.latencies_ms) >= samples_needed(limit.rank)
    if limit and enough and np.percentile(latest.latencies_ms, limit.rank) > limit.value_in_milliseconds:
        return "model latency threshold"
    return "flat invocations" if conditions.flat_invocations == "Stop" and _is_flat(intervals) else None


def _is_flat(intervals: Sequence[Interval]) -> bool:
    return len(intervals) >= 3 and all(
        later.users > earlier.users
        and later.invocations_per_minute < earlier.invocations_per_minute * (1 + FLAT_GROWTH)
        for earlier, later in pairwise(intervals[-3:])
    )


class Run:
    def __init__(
        self, plan: LoadPlan, outgoing: Outgoing, on_window: Callable[[Window], None], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.log = RequestLog()
        self.started_at = 0.0
        """Seconds since the epoch; 0 until the load begins."""
        self.duration_s = 0.0
        """Seconds from the first user to the reason to end, without what drained later."""
        self._plan, self._clock = plan, clock
        self._conditions = plan.stopping_conditions.of_one_in(plan.share.of)
        self._outgoing = outgoing
        self._signing: asyncio.Task[None] | None = None
        self._load = load(plan, outgoing, self.log, clock)
        self._on_window = on_window
        self._stopped = asyncio.Event()
        self._last_success_s = self._slowest_s = 0.0
        self._ticks: list[float] = []
        """For each tick the moment at which it was due, and its delay in seconds."""
        self._stalls = StallWatch(clock)
        self._windows: list[Window] = []
        self._failed_windows = 0
        """Windows with failures since the last success."""
        self._rows_in_windows = self._rows_in_intervals = 0
        self._rows_at_success = 0
        """Rows at the end of the last window with a success."""
        self._intervals: list[Interval] = []

    @property
    def lags_s(self) -> Floats:
        """Delay in seconds of each tick of the run's own clock and each request of an open loop, outside stalls."""
        lags = np.concatenate([self._ticks, self._load.lags_s]).reshape(-1, 2)
        due_s, delays_s = lags[:, 0] - self.log.started, lags[:, 1]
        return delays_s[~touches_stall(self.stalls_s, due_s, due_s + delays_s)]

    @property
    def stalls_s(self) -> Floats:
        """The stalls of this machine, as `StallWatch.stalls_s`."""
        return self._stalls.stalls_s()

    def stop(self) -> None:
        self._stopped.set()

    async def drive(self) -> str:
        """Sends the load to its end and returns why it ended."""
        if self._outgoing.signer is not None:
            self._signing = asyncio.create_task(self._outgoing.signer.keep_fresh(self._outgoing.requests))
        await self._load.prepare()
        await self._wait_for_the_start()
        self.log.started, self.started_at = self._clock.now(), self._clock.epoch()
        self._stalls.start(self.log.started)
        try:
            reason = await self._until_over()
        finally:
            self.duration_s = self._elapsed_s()
            users = len(self._load.pool)
            await self._load.end(self._patience_s)
            self._stalls.stop()
            if self._signing is not None:
                self._signing.cancel()
        self._report_what_did_not_return(users)
        if reason == TRAFFIC_ENDED and self.log.unserved_s and not self.log.answered():
            return self._silence(self._elapsed_s())
        return reason

    def _patience_s(self) -> float:
        if self._stopped.is_set():
            return DRAIN_S
        return max(DRAIN_S, min(DRAIN_FACTOR * self._slowest_s, self._outgoing.timeout_s))

    async def _wait_for_the_start(self) -> None:
        if self._plan.start_at is not None and not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), max(self._plan.start_at - self._clock.epoch(), 0))

    async def _until_over(self) -> str:
        start = 0.0
        while True:
            end = await self._wait_through(start)
            self._report(start, end)
            if reason := self._reason_to_end(end):
                return reason
            start = end

    async def _wait_through(self, start: float) -> float:
        """Sleeps to the window's end, making the load's changes on the way; returns the window's actual end."""
        end = min(start + self._plan.window_s, self._load.end_s)
        for change_s in self._load.changes_s:
            if start <= change_s < end and not self._stopped.is_set():
                await self._sleep_until(change_s)
                self._load.change(change_s)
        await self._sleep_until(end)
        return self._elapsed_s() if self._stopped.is_set() else end

    async def _sleep_until(self, second: float) -> None:
        if self._stopped.is_set():
            return
        try:
            await asyncio.wait_for(self._stopped.wait(), max(second - self._elapsed_s(), 0))
        except TimeoutError:
            self._ticks += [self.log.started + second, self._elapsed_s() - second]

    def _reason_to_end(self, now: float) -> str | None:
        if self._stopped.is_set():
            return "stopped"
        if self._signing is not None and self._signing.done():
            return f"target failed: its requests can no longer be signed: {self._signing.exception()}"
        if self._failed_windows >= DEAD_WINDOWS:
            return f"target failed: {self.log.first_error or self._load.pool.lost_because}"
        if self._target_is_silent(now):
            return self._silence(now - self._last_success_s)
        if now >= self._load.end_s:
            return TRAFFIC_ENDED
        self._close_interval(now)
        return reason_to_stop(self._conditions, self._intervals)

    def _target_is_silent(self, now: float) -> bool:
        if now - self._last_success_s < self._outgoing.timeout_s:
            return False
        return bool((self.log.requests(self._rows_at_success).status == TIMED_OUT).any())

    def _silence(self, seconds: float) -> str:
        lost_because = self._load.pool.lost_because
        return f"target failed: {lost_because or f'{self._outgoing.target.name} answered nothing for {seconds:.0f} s'}"

    def _close_interval(self, now: float) -> None:
        if now < (len(self._intervals) + 1) * INTERVAL_S:
            return
        windows = [window for window in self._windows if window.start_s >= len(self._intervals) * INTERVAL_S]
        rows = self.log.requests(self._rows_in_intervals)
        self._rows_in_intervals += len(rows)
        delayed = touches_stall(self.stalls_s, rows.finished_s - rows.latencies_ms / 1000, rows.finished_s)
        self._intervals.append(
            Interval(
                users=sum(window.users for window in windows) / len(windows),
                invocations_per_minute=len(rows.successful_ms) / (now - windows[0].start_s) * 60,
                latencies_ms=rows.latencies_ms[rows.succeeded & ~delayed],
            )
        )

    def _report_what_did_not_return(self, users: int) -> None:
        """Reports requests that failed or never returned after the end as one more window."""
        rows = self.log.requests(self._rows_in_windows)
        unfinished = len(rows.unfinished_intended_s)
        if rows.errors or unfinished:
            self._on_window(self._window(rows, self.duration_s, self._elapsed_s(), users, unfinished))

    def _report(self, start: float, end: float) -> None:
        rows = self.log.requests(self._rows_in_windows)
        self._rows_in_windows += len(rows)
        window = self._window(rows, start, end, len(self._load.pool))
        if window.invocations > window.errors:
            self._load.pool.lost_because = None
            self._last_success_s, self._rows_at_success = end, self._rows_in_windows
            self._slowest_s = max(self._slowest_s, (window.latency_ms["max"] or 0.0) / 1000)
            self._failed_windows = 0
        elif window.errors or self._load.pool.refused():
            self._failed_windows += 1
        self._windows.append(window)
        self._on_window(window)

    def _window(self, rows: SentRequests, start: float, end: float, users: int, unfinished: int = 0) -> Window:
        return Window(
            start_s=start,
            end_s=end,
            started_at=self.started_at + start,
            users=users,
            invocations=len(rows) + unfinished,
            errors=rows.errors + unfinished,
            latency_ms=percentiles(rows.successful_ms),
            stalled_s=stalled_between(self.stalls_s, start, end),
            histogram=histogram(rows.successful_ms),
        )

    def _elapsed_s(self) -> float:
        return self._clock.now() - self.log.started
