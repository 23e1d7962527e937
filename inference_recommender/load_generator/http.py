"""HTTP/1.1 connections of the generator, each with at most one open request, and their pool.

A `Connection` times and records its requests. It calls `on_free` when it is free, and the load (`loops`) calls `send`.
A `Pool` opens connections, reopens lost ones, times out late requests and closes all connections at the end. Each sent
request is recorded once: with its status, or as unfinished if the run ended before its answer.
"""

import asyncio
from collections.abc import Callable
from math import inf
from typing import cast

from inference_recommender.load_generator.clock import Clock
from inference_recommender.load_generator.http_answer import (
    MORE_THAN_AN_ANSWER,
    AnswerCheck,
    BadAnswer,
    KeptAnswer,
    ParsedAnswer,
    whole_head,
)
from inference_recommender.load_generator.records import CONNECTION_FAILED, TIMED_OUT, UNREADABLE, RequestLog
from inference_recommender.load_generator.requests import Outgoing

SWEEP_S = 0.1
"""Seconds between two checks for late requests. That costs less than a timer for each request."""
RECONNECT_S = 0.1
"""Seconds between a connection's failure and the next attempt. The close of a connection that was open or idle for
longer, without a request, is an idle close."""
CONNECT_TIMEOUT_S = 5.0


class Connection(asyncio.Protocol):
    def __init__(self, number: int, pool: "Pool") -> None:
        self.number = number
        self.leaving = False
        self._pool = pool
        self._now, self._log, self._on_free = pool.now, pool.log, pool.on_free
        self._check = pool.check
        self.free_since = self._now()
        self._intended = 0.0
        self._payload = self._answers = 0
        self._reads = self._lost = False
        self._sent: float | None = None
        self._opened: float | None = None
        self._transport: asyncio.Transport | None = None
        self._missing = 0
        self._keep_alive = True
        self._parsed: ParsedAnswer | None = None

    @property
    def busy(self) -> bool:
        return self._sent is not None

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def lasted(self) -> bool:
        """Whether the target answered on the connection or kept it open for a while."""
        return self._answers > 0 or (self._opened is not None and self._now() - self._opened >= RECONNECT_S)

    def send(self, intended: float, request: bytes, payload: int) -> None:
        """Sends a request that was due at `intended`."""
        assert self._transport is not None
        self._intended = intended
        self._payload = payload
        self._reads = self._check is not None and self._check.chooses(payload)
        self._sent = self._now()
        self._transport.write(request)

    def leave(self) -> None:
        """Closes the connection after the answer to the open request."""
        self.leaving = True
        if self._sent is None and self._transport is not None:
            self._transport.close()

    def waits_since_before(self, moment: float) -> bool:
        return self._sent is not None and self._sent < moment

    def time_out(self, reason: str) -> None:
        """Records the open request as timed out and closes the connection."""
        assert self._transport is not None
        self._log.first_error = self._log.first_error or reason
        self._record_failure(TIMED_OUT)
        self._transport.abort()
        self._report_lost(None)

    def abandon(self, ended: float) -> None:
        """Closes the connection. An open request is recorded as unfinished. `ended` is the end of the run."""
        self.leaving = True
        if self._sent is not None or self._transport is None:
            self._log.unserved_s += max(ended - self.free_since, 0.0)
        if self._sent is not None:
            self._log.add_unfinished(self._intended)
            self._sent = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._opened = self._now()
        if self.leaving:
            self._transport.close()
        else:
            self._on_free(self)

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._missing -= len(data)
        elif self._reads or self._parsed is not None or (head := whole_head(data)) is None:
            return self._parse(data)
        else:
            length, self._keep_alive = head
            self._missing = length - len(data)
        if self._missing == 0:
            self._complete(200, self._now())
        elif self._missing < 0 or self._sent is None:
            self._refuse(MORE_THAN_AN_ANSWER)
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._sent is None:
            self._report_lost(None)
        else:
            self._fail(str(exc) if exc else "the connection was closed")

    def _parse(self, data: bytes) -> None:
        if self._sent is None:  # An answer without a request: some servers announce so that they hang up.
            return self._refuse(MORE_THAN_AN_ANSWER)
        self._parsed = self._parsed or (KeptAnswer() if self._reads else ParsedAnswer())
        try:
            self._parsed.feed(data)
        except BadAnswer as bad:
            return self._refuse(str(bad))
        if self._parsed.complete:
            finished = self._now()
            answer, self._parsed = self._parsed, None
            self._keep_alive, status = answer.keep_alive, answer.status
            problem = None
            if status != 200:
                problem = f"HTTP {status}: {answer.body.decode('utf-8', 'replace')}"
            elif self._check is not None and isinstance(answer, KeptAnswer):
                problem = self._check.problem(self._payload, answer)
                status = UNREADABLE if problem else status
            if problem:
                self._log.unserved_s += finished - self.free_since
                self._log.first_error = self._log.first_error or problem
            self._complete(status, finished)
        return None

    def _complete(self, status: int, finished: float) -> None:
        if self._sent is None:
            return self._refuse(MORE_THAN_AN_ANSWER)
        self._log.add(self._intended, self._sent, finished, status, self._payload)
        self.free_since, self._sent = finished, None
        self._answers += 1
        if self.leaving or not self._keep_alive:
            assert self._transport is not None
            self._transport.close()
        else:
            self._on_free(self)
        return None

    def _refuse(self, reason: str) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        if self._sent is not None:
            self._record_failure(CONNECTION_FAILED)
        self._report_lost(reason)

    def _record_failure(self, status: int) -> None:
        assert self._sent is not None
        now = self._now()
        self._log.add(self._intended, self._sent, now, status, self._payload)
        self._log.unserved_s += now - self.free_since
        self._sent = None

    def _report_lost(self, reason: str | None) -> None:
        """`reason` is None for a close without an open request."""
        if not self._lost:
            self._lost = True
            self._pool.lose(self, reason)


class Pool:
    """The connections of a run. A lost one is replaced by another with the same number."""

    def __init__(
        self, outgoing: Outgoing, log: RequestLog, on_free: Callable[[Connection], None], clock: Clock
    ) -> None:
        self.lost_because: str | None = None
        """Why the last connection failed, without idle closes and timeouts. The run resets it on the next answer."""
        self.log, self.now, self.on_free = log, clock.now, on_free
        self.check = outgoing.complaint and AnswerCheck(len(outgoing.requests), outgoing.complaint)
        self._target, self._tls, self._timeout_s = outgoing.target, outgoing.tls, outgoing.timeout_s
        self._lasted_at = -inf
        self._connections: list[Connection] = []
        self._leaving: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._connections)

    def refused(self) -> bool:
        """Returns whether connections fail and none has lasted recently."""
        now = self.now()
        if any(connection.open and connection.lasted for connection in self._connections):
            self._lasted_at = now
        return self.lost_because is not None and now - self._lasted_at > 2 * RECONNECT_S

    def open(self, number: int) -> asyncio.Task[None]:
        """Starts to connect. The task ends with success or failure."""
        connection = Connection(number, self)
        self._connections.append(connection)
        if self._sweep is None:
            self._time_out_late_ones()
        task = asyncio.create_task(self._connect(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close_latest(self) -> None:
        """Closes the latest connection after the answer to its open request."""
        connection = self._connections.pop()
        self._leaving.append(connection)
        connection.leave()

    def lose(self, connection: Connection, reason: str | None) -> None:
        """Replaces a lost connection, immediately after an idle close."""
        if connection.lasted:
            self._lasted_at = self.now()
        if reason is None and not connection.lasted and connection in self._connections:
            self._miss(connection, f"{self._target.name} closes connections before a request")
        elif reason is None:
            self._reopen(connection)
        else:
            self._replace(connection, reason)

    async def drain(self, patience_s: Callable[[], float]) -> None:
        """Waits for open requests for at most `patience_s()`, then closes all connections."""
        ended = self.now()
        leaving, self._connections = [*self._leaving, *self._connections], []
        self._leaving = leaving
        for connection in leaving:
            connection.leave()
        while any(connection.busy for connection in leaving) and self.now() < ended + patience_s():
            await asyncio.sleep(0.01)
        for connection in leaving:
            connection.abandon(ended)
        for task in list(self._tasks):
            task.cancel()
        if self._sweep is not None:
            self._sweep.cancel()

    def _time_out_late_ones(self) -> None:
        self._leaving = [connection for connection in self._leaving if connection.busy]
        latest = self.now() - self._timeout_s
        for connection in [*self._connections, *self._leaving]:
            if connection.waits_since_before(latest):
                connection.time_out(f"no answer within {self._timeout_s:g} s")
        self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._time_out_late_ones)

    async def _connect(self, connection: Connection) -> None:
        target, loop = self._target, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                if target.socket is not None:
                    await loop.create_unix_connection(lambda: connection, target.socket)
                else:
                    name = target.host if self._tls else None
                    await loop.create_connection(
                        lambda: connection, target.host, target.port, ssl=self._tls, server_hostname=name
                    )
        except TimeoutError:
            self._miss(connection, f"{target.name} accepts no connection within {CONNECT_TIMEOUT_S:.0f} s")
        except (OSError, UnicodeError) as error:  # a UnicodeError is a name that DNS cannot have
            why = getattr(error, "strerror", None) or error
            self._miss(connection, f"{target.name} refuses connections ({why})")

    def _miss(self, connection: Connection, reason: str) -> None:
        self.log.unserved_s += self.now() - connection.free_since + RECONNECT_S
        self._replace(connection, reason)

    def _replace(self, connection: Connection, reason: str) -> None:
        if not connection.leaving and connection in self._connections:
            self.lost_because = reason
            asyncio.get_running_loop().call_later(RECONNECT_S, self._reopen, connection)

    def _reopen(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self.open(connection.number)
