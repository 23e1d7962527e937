"""The proxy in virtual time, with callers and a Triton in memory: no sockets, no processes, and nobody waits.

with Proxied(answering(service_s=0.01)) as proxied:
    caller = proxied.call(invocation(b"{}"))
    proxied.let(1.0)
    assert caller.answers()[0].status == 200
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from local_aws.process.container_contract import ContainerContract
from local_aws.process.proxy import SWEEP_S, Caller, Limits, Proxy
from tests.virtual_time import Network, Serve, VirtualLoop

KEY = "key"
MODEL = "echo"


@dataclass(frozen=True, kw_only=True)
class Told:
    """An answer as a caller reads it."""

    status: int
    headers: dict[str, str]
    body: bytes


def invocation(body: bytes = b"{}", *headers: str, path: str = f"/{KEY}/invocations", method: str = "POST") -> bytes:
    return request(method, path, f"Content-Length: {len(body)}", *headers) + body


def ping() -> bytes:
    return request("GET", f"/{KEY}/ping")


def request(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def in_chunks(*chunks: bytes) -> bytes:
    head = request("POST", f"/{KEY}/invocations", "Transfer-Encoding: chunked")
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def answers(data: bytes) -> list[Told]:
    """Reads what a caller got: whole answers, one after the other."""
    found = []
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        assert end, head
        first, *lines = head.decode().split("\r\n")
        status = int(first.split(" ")[1])
        if status == 100:
            continue
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = int(headers["content-length"])
        assert len(data) >= length, (head, data)
        found.append(Told(status=status, headers=headers, body=data[:length]))
        data = data[length:]
    return found


class Wire(asyncio.Transport):
    """A caller's end of its connection: `send`, `hang_up`, and what it got so far."""

    def __init__(self, loop: VirtualLoop, caller: Caller, takes: bool) -> None:
        super().__init__()
        self.got = bytearray()
        self.ended = False
        """Whether the proxy has sent all that it will."""
        self.closed = False
        self.reading = True
        self._loop = loop
        self._takes = takes
        self._caller = caller
        caller.connection_made(self)

    def send(self, data: bytes) -> None:
        if not self.closed:
            self._caller.data_received(data)

    def hang_up(self) -> None:
        self.close()

    def answers(self) -> list[Told]:
        return answers(bytes(self.got))

    def take(self) -> None:
        """Takes what the proxy wrote."""
        self._takes = True
        self._caller.resume_writing()

    def write(self, data: Any) -> None:
        if self.closed or self.ended:
            return
        self.got += data
        if not self._takes:
            self._caller.pause_writing()

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.call_soon(self._caller.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Proxied:
    """A proxy before a Triton that answers as `serve` says."""

    def __init__(self, serve: Serve, limits: Limits | None = None, connect_s: float = 0.0) -> None:
        self.triton = Network(serve)
        self.loop = VirtualLoop(self.triton)
        self.unforeseen: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.unforeseen.append(context))
        self._runner = asyncio.Runner(loop_factory=lambda: self.loop)
        self._limits = limits
        self._connect_s = connect_s

    def __enter__(self) -> Self:
        async def connect(made: Callable[[], asyncio.Protocol]) -> object:
            await asyncio.sleep(self._connect_s)
            return await self.triton.connect(self.loop, made)

        async def make() -> Proxy:
            return Proxy(ContainerContract(MODEL, KEY), connect, self._limits)

        self.proxy = self._runner.run(make())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.close()
        assert error is not None or self.unforeseen == []

    def call(self, *data: bytes, takes: bool = True) -> Wire:
        """Connects and sends `data`, in one piece each."""
        wire = Wire(self.loop, self.proxy.accept(), takes)
        for piece in data:
            wire.send(piece)
        return wire

    def ask(self, data: bytes) -> Told:
        """Sends one request on a connection of its own and returns its answer."""
        wire = self.call(data)
        self.let(200)
        (told,) = wire.answers()
        wire.hang_up()
        self.let(0)
        return told

    def let(self, seconds: float, meanwhile: Callable[[], None] = lambda: None, every_s: float = SWEEP_S) -> None:
        """Lets time pass, in which deadlines are looked at as the program does, or less often."""

        async def pass_time() -> None:
            end = self.loop.time() + seconds
            while True:
                for _ in range(3):
                    await asyncio.sleep(0)
                self.proxy.sweep()
                meanwhile()
                if self.loop.time() >= end:
                    break
                await asyncio.sleep(min(every_s, end - self.loop.time()))
            for _ in range(3):
                await asyncio.sleep(0)

        self._runner.run(pass_time())
