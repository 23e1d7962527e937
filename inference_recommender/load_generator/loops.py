"""Requests sent at moments fixed beforehand, whatever the answers do: no coordinated omission.

A request that is due while every connection is busy waits for the next one to come free; its latency from intended
send shows that. What was due and never sent, or never answered, is recorded as unfinished.
"""

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from time import perf_counter

from inference_recommender.load_generator.clock import Alarm
from inference_recommender.load_generator.arrivals import arrival_times, end_of
from inference_recommender.load_generator.http import Connection
from inference_recommender.load_generator.outgoing import Outgoing
from inference_recommender.load_generator.plan import Arrivals, Share
from inference_recommender.load_generator.pool import Pool
from inference_recommender.load_generator.records import Records

BACKLOG_S = 1.0
"""How long requests that are due at the end may still wait for a connection."""
CONNECTING_AT_ONCE = 16
"""A server's queue of connections not yet accepted may be short."""


class OpenLoop:
    changes_s: Sequence[float] = (0.0,)

    def __init__(
        self,
        arrivals: Arrivals,
        longest_s: float | None,
        outgoing: Outgoing,
        records: Records,
        share: Share,
    ) -> None:
        self.pool = Pool(outgoing, records, self._free)
        self.end_s = end_of(arrivals, longest_s)
        self.lags_s = array("d")
        """By how much each request that found a connection free was sent too late."""
        self._share = share
        self._times_s = arrival_times(arrivals, longest_s)[share.index :: share.of]
        self._connections = max(share.count(arrivals.connections), 1)
        self._requests = outgoing.requests
        self._records = records
        self._moments: list[float] = []
        """Of `perf_counter`; empty until the run starts."""
        self._next = 0
        self._idle: list[Connection] = []
        self._alarm: Alarm | None = None

    async def prepare(self) -> None:
        """Connect, so that no request's latency holds a handshake; where one fails, the rest is not waited for."""
        for first in range(0, self._connections, CONNECTING_AT_ONCE):
            last = min(first + CONNECTING_AT_ONCE, self._connections)
            connecting = [self.pool.open(number) for number in range(first, last)]
            if self.pool.lost_because is None:
                await asyncio.wait(connecting)
        self._alarm = Alarm(self._send_what_is_due)

    def change(self, second: float) -> None:
        """Called once, at the start."""
        self._moments = (self._times_s + self._records.started).tolist()
        self._send_what_is_due()

    async def end(self) -> None:
        """What is due waits for a connection a little longer, as it would have if the run had gone on."""
        ended = perf_counter()
        self._moments = self._moments[: bisect_right(self._moments, ended)]
        while self._next < len(self._moments) and perf_counter() < ended + BACKLOG_S:
            await asyncio.sleep(0.01)
        unsent, self._moments = self._moments[self._next :], []
        for moment in unsent:
            self._records.add_unfinished(moment)
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None
        await self.pool.drain()

    def _free(self, connection: Connection) -> None:
        """Serve the request that has waited longest, if one has; else be idle."""
        if self._next < len(self._moments) and self._moments[self._next] <= perf_counter():
            self._send(connection)
        else:
            self._idle.append(connection)
            if len(self._idle) == 1:
                self._set_alarm()

    def _send_what_is_due(self) -> None:
        now = perf_counter()
        while self._next < len(self._moments) and self._moments[self._next] <= now and self._idle:
            connection = self._idle.pop()
            if connection.open:
                self.lags_s.append(now - self._moments[self._next])
                self._send(connection)
        self._set_alarm()

    def _set_alarm(self) -> None:
        """For the next request, if a connection is free for it; else the next to come free looks by itself."""
        if self._alarm is not None and self._idle and self._next < len(self._moments):
            self._alarm.set(self._moments[self._next])

    def _send(self, connection: Connection) -> None:
        number = self._next
        self._next = number + 1
        of_all = number * self._share.of + self._share.index
        connection.send(self._moments[number], self._requests[of_all % len(self._requests)])
