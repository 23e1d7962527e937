"""The HTTP server of one process: limits the number of connections, ends slow ones, and drains.

At the limit, a new connection replaces the one that has waited longest for its client, so that a health check always
gets in. A new connection is refused only while all others wait for answers. The limit is below that of file
descriptors, so accepting never fails.
"""

import asyncio
import resource
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from .connection import ClientConnection, HttpLimits, HttpRequest, HttpResponse

CHECK_S = 0.5
FRESH_S = 2.0
"""While the server drains, a connection without a request has this many seconds to send one."""
OTHER_DESCRIPTORS = 64
"""Files and sockets of the process that are not connections."""
BACKLOG = 1024

Respond = Callable[[HttpRequest], Awaitable[HttpResponse]]
Refuse = Callable[[int, str], HttpResponse]


class NeuronHttpServer:
    """`respond` answers a request and raises nothing. `refuse` returns the answer to an unreadable request."""

    def __init__(self, respond: Respond, refuse: Refuse, limits: HttpLimits, keeps_alive: bool = True) -> None:
        self.respond = respond
        self.refuse = refuse
        self.keeps_alive = keeps_alive
        self.held = 0  # bytes of bodies without an answer
        self.connections: set[ClientConnection] = set()
        self._limits = limits
        self._waiting: dict[ClientConnection, None] = {}  # for their clients, the longest wait first
        self._listening: list[asyncio.AbstractServer] = []
        self._checking: asyncio.Task[None] | None = None
        self._empty = asyncio.Event()

    async def listen(self, listener: socket.socket) -> None:
        """Accepts connections and takes over `listener`, which is bound."""
        loop = asyncio.get_running_loop()
        self._checking = self._checking or loop.create_task(self._check())
        self._listening.append(
            await loop.create_server(lambda: ClientConnection(self, self._limits), sock=listener, backlog=BACKLOG)
        )

    async def drain(self, seconds: float) -> None:
        """Accepts no more, answers requests that have begun, and cuts the others after `seconds`."""
        self.keeps_alive = False
        for serving in self._listening:
            serving.close()
        await asyncio.sleep(0)  # the loop makes an accepted connection in its next turn
        for connection in list(self._waiting):
            connection.leave(FRESH_S)
        self._empty.clear()
        if self.connections:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._empty.wait(), seconds)
        for connection in list(self.connections):
            connection.cut()
        if self._checking:
            self._checking.cancel()

    def end_overdue(self, now_s: float) -> None:
        """Ends the connections whose time is over at `now_s` of the loop's clock."""
        for connection in [each for each in self.connections if each.due_s <= now_s]:
            connection.overdue()

    # Called by connections

    def admit(self, connection: ClientConnection) -> bool:
        if len(self.connections) >= self._limits.connections:
            if not self._waiting:
                return False
            longest = next(iter(self._waiting))
            self.forget(longest)
            longest.cut()
        self.connections.add(connection)
        self._waiting[connection] = None
        return True

    def forget(self, connection: ClientConnection) -> None:
        self.connections.discard(connection)
        self._waiting.pop(connection, None)
        if not self.connections:
            self._empty.set()

    def busy(self, connection: ClientConnection) -> None:
        self._waiting.pop(connection, None)

    def waits(self, connection: ClientConnection) -> None:
        if connection in self.connections:
            self._waiting[connection] = None

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            self.end_overdue(asyncio.get_running_loop().time())


def bind(host: str, port: int) -> socket.socket:
    """Returns a listening socket that can share its port. Raises OSError if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=True)


def limits() -> HttpLimits:
    """Raises the process's limit of file descriptors to its maximum, and returns limits below it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most == resource.RLIM_INFINITY:
        return HttpLimits()
    # A replaced connection closes a little later than the new one is accepted.
    return replace(HttpLimits(), connections=max(1, min(HttpLimits.connections, (most - OTHER_DESCRIPTORS) // 2)))
