"""The two kinds of load. Closed loop: each user sends its next request when its last one returned.

Open loop: requests are due at moments that are fixed before the run, so a slow service cannot reduce the load
(coordinated omission). A due request waits for a free connection; its latency from intended send includes the wait.
"""

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from inference_recommender.load_generator.clock import Clock
from inference_recommender.load_generator.http import Connection, Pool
from inference_recommender.load_generator.load_plan import (
    Arrivals,
    LoadPlan,
    Schedule,
    Share,
    arrival_times,
    payload_numbers,
    schedule,
)
from inference_recommender.load_generator.records import RequestLog
from inference_recommender.load_generator.requests import Outgoing

PRIME = 7919
"""Distance of the users' first payloads, so that no two send the same sequence at the same time."""
BACKLOG_S = 1.0
"""Seconds that due requests may wait for a connection after the end."""
CONNECTING_AT_ONCE = 16
"""Connections opened together. A server's queue of new connections may be short."""


class ClosedLoop:
    """Users. `change` applies the schedule at each of `changes_s` after the start."""

    lags_s: Sequence[float] = ()
    """Empty: a user's next request is due when its last one returns."""

    def __init__(self, schedule: Schedule, outgoing: Outgoing, log: RequestLog, share: Share, clock: Clock) -> None:
        self.pool = Pool(outgoing, log, self._send, clock)
        self.end_s = schedule.end_s
        self.changes_s: Sequence[float] = [at_s for at_s, _ in schedule.changes]
        self._schedule = schedule
        self._share = share
        self._requests = outgoing.requests
        self._turns: list[int] = []

    async def prepare(self) -> None:
        """No-op. Users connect when they join."""

    def change(self, second: float) -> None:
        """Adds or removes users."""
        count = self._share.count(self._schedule.users_at(second))
        while len(self.pool) > count:
            self.pool.close_latest()
        while len(self.pool) < count:
            of_all = len(self._turns) * self._share.of + self._share.index
            self._turns.append(of_all * PRIME % len(self._requests))
            self.pool.open(len(self._turns) - 1)

    async def end(self, patience_s: Callable[[], float]) -> None:
        """Waits for open requests for at most `patience_s()` in all, and records the rest as unfinished."""
        await self.pool.drain(patience_s)

    def _send(self, user: Connection) -> None:
        turn = self._turns[user.number]
        self._turns[user.number] = (turn + 1) % len(self._requests)
        user.send(user.free_since, self._requests[turn], turn)


class OpenLoop:
    """Arrivals. `change` starts them."""

    changes_s: Sequence[float] = (0.0,)

    def __init__(self, arrivals: Arrivals, outgoing: Outgoing, log: RequestLog, share: Share, clock: Clock) -> None:
        self.pool = Pool(outgoing, log, self._free, clock)
        self.end_s = arrivals.duration_in_seconds
        self.lags_s = array("d")
        """Due moment and delay of each request that found a free connection."""
        self._clock, self._now, self._log = clock, clock.now, log
        self._share = share
        self._times_s = arrival_times(arrivals)[share.index :: share.of]
        self._connections = max(share.count(arrivals.connections), 1)
        self._requests = outgoing.requests
        self._payloads = payload_numbers(arrivals, outgoing.sizes)
        self._moments: list[float] = []
        """When each request is due on the run's clock. Empty before the start."""
        self._next = 0
        self._idle: list[Connection] = []
        self._alarm: Any = None

    async def prepare(self) -> None:
        """Connects, so that no latency includes a handshake. Does not wait after a failure."""
        for first in range(0, self._connections, CONNECTING_AT_ONCE):
            last = min(first + CONNECTING_AT_ONCE, self._connections)
            connecting = [self.pool.open(number) for number in range(first, last)]
            if self.pool.lost_because is None:
                await asyncio.wait(connecting)
        self._alarm = self._clock.alarm(self._send_what_is_due)

    def change(self, second: float) -> None:
        self._moments = (self._times_s + self._log.started).tolist()
        self._send_what_is_due()

    async def end(self, patience_s: Callable[[], float]) -> None:
        """Gives due requests a little longer to get a connection."""
        ended = self._now()
        self._moments = self._moments[: bisect_right(self._moments, ended)]
        while self._next < len(self._moments) and self._now() < ended + BACKLOG_S:
            await asyncio.sleep(0.01)
        for moment in self._moments[self._next :]:
            self._log.add_unfinished(moment)
        self._moments = []
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None
        await self.pool.drain(patience_s)

    def _free(self, connection: Connection) -> None:
        """Sends the request that has waited longest, or marks the connection as idle."""
        if self._next < len(self._moments) and self._moments[self._next] <= self._now():
            self._send(connection)
        else:
            if len(self._idle) >= len(self.pool):
                self._idle = [each for each in self._idle if each.open]
            self._idle.append(connection)
            if len(self._idle) == 1:
                self._set_alarm()

    def _send_what_is_due(self) -> None:
        now = self._now()
        while self._next < len(self._moments) and self._moments[self._next] <= now and self._idle:
            connection = self._idle.pop()
            if connection.open:
                due = self._moments[self._next]
                self.lags_s.append(due)
                self.lags_s.append(now - due)
                self._send(connection)
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None and self._idle and self._next < len(self._moments):
            self._alarm.set(self._moments[self._next])

    def _send(self, connection: Connection) -> None:
        number = self._next
        self._next = number + 1
        of_all = number * self._share.of + self._share.index
        payload = of_all % len(self._requests) if self._payloads is None else self._payloads[of_all]
        connection.send(self._moments[number], self._requests[payload], payload)


Load = ClosedLoop | OpenLoop


def load(plan: LoadPlan, outgoing: Outgoing, log: RequestLog, clock: Clock) -> Load:
    """Returns the load of a plan."""
    if plan.arrivals is not None:
        return OpenLoop(plan.arrivals.cut(plan.job_duration_s), outgoing, log, plan.share, clock)
    assert plan.traffic_pattern is not None, "held by LoadPlan"
    return ClosedLoop(schedule(plan.traffic_pattern, plan.job_duration_s), outgoing, log, plan.share, clock)
