"""The connections of a run: opened, opened again when lost, and hung up in the end."""

import asyncio
from collections.abc import Callable
from time import perf_counter

from inference_recommender.load_generator.http import Connection
from inference_recommender.load_generator.outgoing import Outgoing
from inference_recommender.load_generator.records import Records

DRAIN_S = 5.0
"""How long requests under way may take to return once the run has ended."""
RECONNECT_S = 0.1
CONNECT_TIMEOUT_S = 5.0


class Pool:
    def __init__(self, outgoing: Outgoing, records: Records, on_free: Callable[[Connection], None]) -> None:
        self.lost_because: str | None = None
        """Why the last lost connection was lost; whoever sees an answer again sets it to None."""
        self._target = outgoing.target
        self._tls = outgoing.tls
        self._records = records
        self._on_free = on_free
        self._connections: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._connections)

    def open(self, number: int) -> asyncio.Task[None]:
        """Begin to connect; the task ends when that came to something, or to nothing."""
        connection = Connection(number, self._records, self._on_free, self._lose)
        self._connections.append(connection)
        task = asyncio.create_task(self._connect(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close_latest(self) -> None:
        """Let the latest one finish what is under way and hang up."""
        self._connections.pop().leave()

    async def drain(self) -> None:
        """Let the requests under way return, for a while, then hang up on the rest."""
        leaving, self._connections = self._connections, []
        for connection in leaving:
            connection.leave()
        deadline = perf_counter() + DRAIN_S
        while any(connection.busy for connection in leaving) and perf_counter() < deadline:
            await asyncio.sleep(0.01)
        for connection in leaving:
            connection.abandon()
        for task in list(self._tasks):
            task.cancel()

    async def _connect(self, connection: Connection) -> None:
        target = self._target
        name = target.host if self._tls else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await loop.create_connection(
                    lambda: connection, target.host, target.port, ssl=self._tls, server_hostname=name
                )
        except TimeoutError:
            self._replace(connection, f"{target.authority} accepts no connection within {CONNECT_TIMEOUT_S:.0f} s")
        except OSError as error:
            self._replace(connection, f"{target.authority} refuses connections ({error.strerror or error})")

    def _lose(self, connection: Connection, reason: str | None) -> None:
        """A lost connection is followed by another of the same number: at once where the server just hung up."""
        if reason is None:
            self._reopen(connection)
        else:
            self._replace(connection, reason)

    def _replace(self, connection: Connection, reason: str) -> None:
        if connection.leaving or connection not in self._connections:
            return
        self.lost_because = reason
        asyncio.get_running_loop().call_later(RECONNECT_S, self._reopen, connection)

    def _reopen(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self.open(connection.number)
