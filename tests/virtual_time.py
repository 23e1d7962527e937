"""An asyncio event loop in virtual time, with a network in memory: nothing waits, and no answer depends on the machine.

    network = Network(answering(service_s=0.01))
    loop = VirtualLoop(network)
    result = loop.run(something_async())

Time stands still while callbacks run and jumps to the next timer when none is ready, so a test of an hour takes as long
as its callbacks, and every moment in it is exact. Connections end in `network`, where a script answers each request
after the service times that the test chooses. `VirtualLoop.block` lets time pass within a callback, as a busy machine
does.

It has no sockets, files, signals or processes; a thread's work is done at once, in the loop's own thread.
"""

import asyncio
import errno
import os
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from inference_recommender.load_generator.clock import Clock

T = TypeVar("T")

EPOCH = 1_700_000_000.0
"""Seconds since 1970 at which the loop's time is 0."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The bytes that a client wrote at once, which for the load generator is one HTTP request."""

    data: bytes
    at_s: float
    """The loop's time."""
    connection: int
    """Connections are numbered in the order in which they were opened."""

    @property
    def body(self) -> bytes:
        return self.data.partition(b"\r\n\r\n")[2]


class Peer:
    """The server's side of a connection."""

    def __init__(self, loop: "VirtualLoop", transport: "_Transport") -> None:
        self._loop = loop
        self._transport = transport

    def send(self, data: bytes, after_s: float = 0.0) -> None:
        """Delivers `data` to the client after `after_s` seconds, in one piece."""
        self._loop.call_later(after_s, self._transport.deliver, data)

    def hang_up(self, after_s: float = 0.0) -> None:
        """Closes the connection after `after_s` seconds."""
        self._loop.call_later(after_s, self._transport.close)


Serve = Callable[[Request, Peer], None]
"""A server: is called for each request, and answers through the peer, now or later."""


def http_answer(body: bytes = b"{}", status: int = 200, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def answering(
    service_s: float | Callable[[Request], float] = 0.01,
    answer: Callable[[bytes], tuple[int, bytes]] = lambda body: (200, b"{}"),
) -> Serve:
    """Returns a server that answers each request by itself, `service_s` after it came."""

    def serve(request: Request, peer: Peer) -> None:
        status, body = answer(request.body)
        peer.send(http_answer(body, status), service_s(request) if callable(service_s) else service_s)

    return serve


class Network:
    """All servers there are: every host and port leads to `serve`. It keeps what it saw."""

    def __init__(self, serve: Serve, on_connect: Callable[[Peer], None] = lambda peer: None) -> None:
        self.serve: Serve | None = serve
        """None refuses connections."""
        self._on_connect = on_connect
        self.accepts = True
        """Whether a connection attempt ever comes to an end."""
        self.requests: list[Request] = []
        self.attempts_s: list[float] = []
        """The loop's time at each attempt to connect."""
        self.connections = 0
        self._open: list[_Transport] = []

    def die(self) -> None:
        """Cuts every connection and refuses new ones, as a killed process does."""
        self.serve = None
        for transport in self._open:
            transport.close()

    async def connect(self, loop: "VirtualLoop", protocol_factory: Callable[[], asyncio.BaseProtocol]) -> "_Transport":
        self.attempts_s.append(loop.time())
        if not self.accepts:
            await loop.create_future()
        if self.serve is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        protocol = protocol_factory()
        assert isinstance(protocol, asyncio.Protocol)
        transport = _Transport(loop, self, protocol, self.connections)
        self.connections += 1
        self._open.append(transport)
        protocol.connection_made(transport)
        self._on_connect(transport.peer)
        return transport


class _Transport(asyncio.Transport):
    def __init__(self, loop: "VirtualLoop", network: Network, protocol: asyncio.Protocol, number: int) -> None:
        super().__init__()
        self._loop = loop
        self._network = network
        self._protocol = protocol
        self._number = number
        self.peer = Peer(loop, self)
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._network.serve is None:
            return
        request = Request(data=bytes(data), at_s=self._loop.time(), connection=self._number)
        self._network.requests.append(request)
        self._network.serve(request, self.peer)

    def deliver(self, data: bytes) -> None:
        if not self._closing:
            self._protocol.data_received(data)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()


class _JumpingSelector(selectors.SelectSelector):
    """Waits for nothing: the time that it was to wait has passed when it returns."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("Nothing is scheduled and nothing is ready: this would wait for ever.")
        self.loop.block(max(timeout, 0.0))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, network: Network, start_s: float = 1000.0) -> None:
        selector = _JumpingSelector()
        selector.loop = self
        self._virtual_s = start_s
        self._network = network
        super().__init__(selector)
        self._clock_resolution = 1e-9
        self.signal_handlers: dict[int, Callable[[], object]] = {}
        self.stolen_s = 0.0
        """CPU time per core that a hypervisor took."""

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs `main` to its end and closes the loop."""
        with asyncio.Runner(loop_factory=lambda: self) as runner:
            return runner.run(main)

    def time(self) -> float:
        return self._virtual_s

    def block(self, seconds: float) -> None:
        """Lets time pass while no callback may run."""
        self._virtual_s += seconds

    def clock(self, cpu_share: float = 0.1) -> Clock:
        """Returns this loop's time as the clocks of a load generator that uses a part of its core."""
        return Clock(
            now=self.time,
            epoch=lambda: EPOCH + self.time(),
            cpu=lambda: cpu_share * self.time(),
            stolen=lambda: self.stolen_s,
            alarm=lambda ring: _LoopAlarm(self, ring),
        )

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], *where: object, **options: object
    ) -> tuple[asyncio.Transport, None]:
        return await self._network.connect(self, protocol_factory), None

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        """Does a thread's work at once."""
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:  # type: ignore[override]
        """Keeps the handler, for a test to call."""
        self.signal_handlers[sig] = lambda: callback(*args)


class _LoopAlarm:
    """A load generator's alarm by the loop's own timers, which in virtual time are exact."""

    def __init__(self, loop: VirtualLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None

    def set(self, moment: float) -> None:
        self.close()
        self._timer = self._loop.call_at(moment, self._ring)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
