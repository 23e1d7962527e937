"""The run itself: its load is sent, a window is told every `window_s`, until something ends it.

`Run.drive` returns why it ended: "traffic ended", a stopping condition's name, "stopped", or "target failed: …".
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from time import perf_counter

from inference_recommender.capacity.closed_loop import INTERVAL_S
from inference_recommender.capacity.histogram import Histogram
from inference_recommender.load_generator.load import load
from inference_recommender.load_generator.outgoing import Outgoing
from inference_recommender.load_generator.plan import LoadPlan
from inference_recommender.load_generator.records import Records, Rows
from inference_recommender.load_generator.stopping import Interval, reason_to_stop
from inference_recommender.load_generator.windows import Window, percentiles

DEAD_WINDOWS = 2
"""After this many windows with failures and not one success, the target has failed."""


class Run:
    def __init__(self, plan: LoadPlan, outgoing: Outgoing, on_window: Callable[[Window], None]) -> None:
        self.records = Records()
        self.started_at = 0.0
        """In seconds since the epoch."""
        self._plan = plan
        self._conditions = plan.stopping_conditions.of_one_in(plan.share.of)
        self._signer = outgoing.signer
        self._requests = outgoing.requests
        self._signing: asyncio.Task[None] | None = None
        self._load = load(plan, outgoing, self.records)
        self._on_window = on_window
        self._stopped = asyncio.Event()
        self._ended = 0.0
        self._ticks_late_s: list[float] = []
        self._windows: list[Window] = []
        self._rows_in_intervals = 0
        self._intervals: list[Interval] = []

    @property
    def lags_s(self) -> list[float]:
        """How late each tick of the run's own clock came, and each request of an open loop."""
        return [*self._ticks_late_s, *self._load.lags_s]

    @property
    def duration_s(self) -> float:
        """From the first user to the reason to end; what drains later is no part of it."""
        return self._ended

    def stop(self) -> None:
        self._stopped.set()

    async def drive(self) -> str:
        if self._signer is not None:
            self._signing = asyncio.create_task(self._signer.keep_fresh(self._requests))
        await self._load.prepare()
        await self._wait_for_the_others()
        self.records.started, self.started_at = perf_counter(), time.time()
        try:
            return await self._until_over()
        finally:
            self._ended = self._clock()
            await self._load.end()
            if self._signing is not None:
                self._signing.cancel()

    async def _wait_for_the_others(self) -> None:
        if self._plan.start_at is not None and not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), max(self._plan.start_at - time.time(), 0))

    async def _until_over(self) -> str:
        window_rows = 0
        window_start = 0.0
        while True:
            window_end = await self._wait_through(window_start)
            rows = self.records.rows(window_rows)
            window_rows += len(rows.finished_s)
            self._tell(rows, window_start, window_end)
            if reason := self._reason_to_end(window_end):
                return reason
            window_start = window_end

    async def _wait_through(self, start: float) -> float:
        """Sleep to the window's end, making the load's changes on the way; the window's actual end."""
        end = min(start + self._plan.window_s, self._load.end_s)
        for change_s in self._load.changes_s:
            if start <= change_s < end and not self._stopped.is_set():
                await self._sleep_until(change_s)
                self._load.change(change_s)
        await self._sleep_until(end)
        return self._clock() if self._stopped.is_set() else end

    async def _sleep_until(self, second: float) -> None:
        if self._stopped.is_set():
            return
        try:
            await asyncio.wait_for(self._stopped.wait(), max(second - self._clock(), 0))
        except TimeoutError:
            self._ticks_late_s.append(self._clock() - second)

    def _reason_to_end(self, now: float) -> str | None:
        if self._stopped.is_set():
            return "stopped"
        if self._signing is not None and self._signing.done():
            return f"target failed: its requests can no longer be signed: {self._signing.exception()}"
        if self._target_is_dead():
            return f"target failed: {self.records.first_error or self._load.pool.lost_because}"
        if now >= self._load.end_s:
            return "traffic ended"
        self._close_interval(now)
        return reason_to_stop(self._conditions, self._intervals)

    def _target_is_dead(self) -> bool:
        latest = self._windows[-DEAD_WINDOWS:]
        refused = self._load.pool.lost_because is not None
        return len(latest) == DEAD_WINDOWS and all(
            window.invocations == window.errors and (window.errors or refused) for window in latest
        )

    def _close_interval(self, now: float) -> None:
        if now < (len(self._intervals) + 1) * INTERVAL_S:
            return
        windows = [window for window in self._windows if window.start_s >= len(self._intervals) * INTERVAL_S]
        rows = self.records.rows(self._rows_in_intervals)
        self._rows_in_intervals += len(rows.finished_s)
        self._intervals.append(
            Interval(
                users=sum(window.users for window in windows) / len(windows),
                invocations_per_minute=len(rows.successful_ms) / (now - windows[0].start_s) * 60,
                latencies_ms=rows.successful_ms,
            )
        )

    def _tell(self, rows: Rows, start: float, end: float) -> None:
        window = Window(
            start_s=start,
            end_s=end,
            started_at=self.started_at + start,
            users=len(self._load.pool),
            invocations=len(rows.finished_s),
            errors=rows.errors,
            latency_ms=percentiles(rows.successful_ms),
            histogram=Histogram.of(rows.successful_ms).pairs(),
        )
        if window.invocations > window.errors:
            self._load.pool.lost_because = None
        self._windows.append(window)
        self._on_window(window)

    def _clock(self) -> float:
        return perf_counter() - self.records.started
