"""The run itself: users come and go by the schedule, a window is told every `window_s`, until something ends it.

`Run.drive` returns why it ended: "traffic ended", a stopping condition's name, "stopped", or "target failed: …".
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from inference_recommender.capacity import INTERVAL_S
from inference_recommender.generator.plan import LoadPlan
from inference_recommender.generator.records import Records, Rows
from inference_recommender.generator.schedule import schedule
from inference_recommender.generator.stopping import Interval, reason_to_stop
from inference_recommender.generator.user import User, serialise
from inference_recommender.generator.windows import Window, histogram, percentiles

DRAIN_S = 5.0
"""How long requests under way may take to return once the run has ended."""
RECONNECT_S = 0.1
DEAD_WINDOWS = 2
"""After this many windows with failures and not one success, the target has failed."""


class Run:
    def __init__(self, plan: LoadPlan, bodies: Sequence[bytes], on_window: Callable[[Window], None]) -> None:
        self.records = Records()
        self.lags_s: list[float] = []
        """How late each tick of the run's own clock came."""
        self._plan = plan
        self._schedule = schedule(plan.traffic_pattern, plan.job_duration_s)
        self._requests = serialise(plan.url, plan.content_type, bodies)
        self._on_window = on_window
        self._users: list[User] = []
        self._spawned = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        self._lost_because: str | None = None
        self._started = 0.0
        self._ended = 0.0
        self._windows: list[Window] = []
        self._rows_in_intervals = 0
        self._intervals: list[Interval] = []

    @property
    def duration_s(self) -> float:
        """From the first user to the reason to end; what drains later is no part of it."""
        return self._ended

    def stop(self) -> None:
        self._stopped.set()

    async def drive(self) -> str:
        self._started = time.perf_counter()
        try:
            return await self._until_over()
        finally:
            self._ended = self._clock()
            await self._drain()

    async def _until_over(self) -> str:
        window_rows = 0
        window_start = 0.0
        while True:
            self._set_users(self._schedule.users_at(window_start))
            window_end = await self._wait_through(window_start)
            rows = self.records.rows(window_rows)
            window_rows += len(rows.finished_s)
            self._tell(rows, window_start, window_end)
            if reason := self._reason_to_end(window_end):
                return reason
            window_start = window_end

    async def _wait_through(self, start: float) -> float:
        """Sleep to the window's end, changing the number of users on the way; the window's actual end."""
        end = min(start + self._plan.window_s, self._schedule.end_s)
        for change in self._schedule.changes:
            if start < change.at_s < end:
                await self._sleep_until(change.at_s)
                self._set_users(change.users)
        await self._sleep_until(end)
        return self._clock() if self._stopped.is_set() else end

    async def _sleep_until(self, second: float) -> None:
        if self._stopped.is_set():
            return
        try:
            await asyncio.wait_for(self._stopped.wait(), max(second - self._clock(), 0))
        except TimeoutError:
            self.lags_s.append(self._clock() - second)

    def _reason_to_end(self, now: float) -> str | None:
        if self._stopped.is_set():
            return "stopped"
        if self._target_is_dead():
            return f"target failed: {self.records.first_error or self._lost_because}"
        if now >= self._schedule.end_s:
            return "traffic ended"
        self._close_interval(now)
        return reason_to_stop(self._plan.stopping_conditions, self._intervals)

    def _target_is_dead(self) -> bool:
        latest = self._windows[-DEAD_WINDOWS:]
        refused = self._lost_because is not None
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
            started_at=time.time() - (self._clock() - start),
            users=len(self._users),
            invocations=len(rows.finished_s),
            errors=rows.errors,
            latency_ms=percentiles(rows.successful_ms),
            histogram=histogram(rows.successful_ms),
        )
        if window.invocations > window.errors:
            self._lost_because = None
        self._windows.append(window)
        self._on_window(window)

    def _clock(self) -> float:
        return time.perf_counter() - self._started

    def _set_users(self, count: int) -> None:
        while len(self._users) > count:
            self._users.pop().leave()
        while len(self._users) < count:
            self._join(self._spawned)
            self._spawned += 1

    def _join(self, number: int) -> None:
        user = User(
            number=number,
            requests=self._requests,
            records=self.records,
            clock=self._clock,
            intended=self._clock(),
            on_lost=self._replace,
        )
        self._users.append(user)
        task = asyncio.create_task(self._connect(user))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, user: User) -> None:
        target = urlsplit(self._plan.url)
        try:
            await asyncio.get_running_loop().create_connection(lambda: user, target.hostname or "", target.port or 80)
        except OSError as error:
            self._replace(user, f"{target.netloc} refuses connections ({error.strerror or error})")

    def _replace(self, user: User, reason: str) -> None:
        """A lost user is followed by another of the same number, after a pause."""
        if user.leaving or user not in self._users:
            return
        self._lost_because = reason
        asyncio.get_running_loop().call_later(RECONNECT_S, self._rejoin, user)

    def _rejoin(self, user: User) -> None:
        if user in self._users:
            self._users.remove(user)
            self._join(user.number)

    async def _drain(self) -> None:
        leaving, self._users = self._users, []
        for user in leaving:
            user.leave()
        deadline = time.perf_counter() + DRAIN_S
        while any(user.busy for user in leaving) and time.perf_counter() < deadline:
            await asyncio.sleep(0.01)
        for user in leaving:
            user.abandon()
        for task in list(self._tasks):
            task.cancel()
