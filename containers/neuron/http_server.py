"""The HTTP server of one process: holds its connections within their number, ends the slow ones, and drains.

At the limit of connections a new one takes the place of the one that has waited longest for its caller to send
something, so that a health check gets in however many connections are opened and left. Only where all of them wait for
answers is a new one refused. The limit stays below that of file descriptors, so accepting never fails.
"""

import asyncio
import resource
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from .connection import Answer, Connection, Limits, Request

SWEEP_S = 0.5
FRESH_S = 2.0
"""Seconds that a connection which has sent nothing yet has to send a request when the server drains."""
OTHER_DESCRIPTORS = 64
"""Files and sockets of the process beside its connections."""
BACKLOG = 1024

Respond = Callable[[Request], Awaitable[Answer]]
Refuse = Callable[[int, str], Answer]


class HttpServer:
    """`respond` answers a request and raises nothing; `refuse` makes the answer to one that cannot be read."""

    def __init__(self, respond: Respond, refuse: Refuse, limits: Limits, keeps_alive: bool = True) -> None:
        self.respond = respond
        self.refuse = refuse
        self.keeps_alive = keeps_alive
        self.held = 0  # bytes of the bodies that are not answered yet
        self._limits = limits
        self._connections: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}  # for their callers; the longest wait is first
        self._listening: list[asyncio.AbstractServer] = []
        self._sweeping: asyncio.Task[None] | None = None
        self._empty = asyncio.Event()

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    async def listen(self, listener: socket.socket) -> None:
        """Accepts connections. Takes `listener` over, which is bound."""
        loop = asyncio.get_running_loop()
        self._sweeping = self._sweeping or loop.create_task(self._sweep())
        serving = await loop.create_server(lambda: Connection(self, self._limits), sock=listener, backlog=BACKLOG)
        self._listening.append(serving)

    async def drain(self, seconds: float) -> None:
        """Accepts no more, lets the requests that have begun be answered, and cuts what is left after `seconds`."""
        self.keeps_alive = False
        for serving in self._listening:
            serving.close()
        await asyncio.sleep(0)  # a connection that the loop has accepted is made in its next turn
        for connection in list(self._waiting):
            connection.leave(FRESH_S)
        self._empty.clear()
        if self._connections:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._empty.wait(), seconds)
        for connection in list(self._connections):
            connection.cut()
        if self._sweeping:
            self._sweeping.cancel()

    def sweep(self, now_s: float) -> None:
        """Ends the connections whose time is over at the moment `now_s` of the loop's clock."""
        for connection in [each for each in self._connections if each.due_s <= now_s]:
            connection.overdue()

    # Connections call these.

    def admit(self, connection: Connection) -> bool:
        if len(self._connections) >= self._limits.connections:
            if not self._waiting:
                return False
            longest = next(iter(self._waiting))
            self.forget(longest)
            longest.cut()
        self._connections.add(connection)
        self._waiting[connection] = None
        return True

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._waiting.pop(connection, None)
        if not self._connections:
            self._empty.set()

    def busy(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)

    def waits(self, connection: Connection) -> None:
        if connection in self._connections:
            self._waiting[connection] = None

    def hold(self, size: int) -> bool:
        """Counts `size` bytes of a body, and returns whether there is room for them."""
        self.held += size
        return self.held <= self._limits.held

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sweep(loop.time())


def bind(host: str, port: int) -> socket.socket:
    """Returns a socket that listens, one of several that share the port. Raises OSError where it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=True)


def limits() -> Limits:
    """Raises the process's limit of file descriptors as far as it may, and returns the limits that fit below it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most == resource.RLIM_INFINITY:
        return Limits()
    # A connection that gave way is closed a little later than the one it gave way to is accepted.
    return replace(Limits(), connections=max(1, min(Limits.connections, (most - OTHER_DESCRIPTORS) // 2)))
