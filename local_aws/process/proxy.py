"""The loopback proxy in front of a Triton, for callers on this machine: `/ping`, `/invocations`, `/statistics`, and
nothing else.

A caller's request is read whole and checked before Triton hears of it, and goes to Triton over a kept connection to
its socket in a private folder. What a caller can make us hold is bounded (`Limits`): bytes, chunks, connections, and
time for a head, a body, an answer. Work for a caller that hung up is given up, in Triton, too.

It knows connections; what a head means is in `container_contract`. Who starts it and Triton is `serve_model`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import cast

from local_aws.process import container_contract as contract
from local_aws.process.container_contract import Answer, ChunkedBody, ContainerContract, Refused
from local_aws.process.triton_connection import TritonConnection


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The most that all callers together, and one, may take. A connection holds at most a head, what came early, and a
    body or an answer of up to `FREE_BYTES`; the larger ones are counted together in `held_bytes`.
    """

    connections: int = 1024
    held_bytes: int = 256 << 20
    chunks: int = 4096
    """A chunked body of more is refused: each costs a fixed time, however small it is."""
    head_s: float = 10.0
    body_s: float = 30.0
    ping_s: float = 2.0
    """SageMaker waits so long for an answer to /ping."""
    invocation_s: float = 60.0
    """SageMaker waits so long for an answer to /invocations."""
    reading_s: float = 30.0
    """Time in which a caller takes its answer."""
    idle_s: float = 120.0
    linger_s: float = 2.0
    """After a refusal, what the caller still sends is thrown away for so long: only then does it read the answer."""


FREE_BYTES = 65_536
SWEEP_S = 0.5
"""Deadlines are looked at so often, by one timer for all connections."""
KEPT = 64
"""Connections to Triton that are kept without a request."""

NOT_READY = contract.error(HTTPStatus.SERVICE_UNAVAILABLE, "The model is not ready.")
TOO_LATE = contract.error(HTTPStatus.GATEWAY_TIMEOUT, "The model did not answer in time.")
READY = contract.empty(HTTPStatus.OK)
HEAD_TOO_LARGE = Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's head is too long.").answer
TOO_SLOW = Refused(HTTPStatus.REQUEST_TIMEOUT, "The request did not arrive in time.").answer
TOO_MANY = Refused(HTTPStatus.SERVICE_UNAVAILABLE, "There are too many connections; ask again.").answer
OUT_OF_ROOM = Refused(HTTPStatus.SERVICE_UNAVAILABLE, "Other requests take all the room; ask again.").answer

Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[object]]
"""Opens a connection to Triton for a protocol; raises OSError."""


class Phase(Enum):
    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    ASKED = auto()
    ANSWERED = auto()
    """The caller has yet to take its answer."""
    LEAVING = auto()


class Proxy:
    """Holds what all connections share: the callers, the connections to Triton, and what is held for them."""

    def __init__(self, agreed: ContainerContract, connect: Connect, limits: Limits | None = None) -> None:
        self.contract = agreed
        self.limits = limits or Limits()
        self.callers: set[Caller] = set()
        self.held_bytes = 0
        self.draining = False
        self._connect = connect
        self._free: list[TritonConnection] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time

    def accept(self) -> "Caller":
        """Returns the protocol of a new connection."""
        return Caller(self)

    def admit(self, caller: "Caller") -> bool:
        """Takes a caller in. Where there are too many, the one that has longest asked for nothing makes room."""
        if len(self.callers) >= self.limits.connections:
            waiting = [each for each in self.callers if each.phase is not Phase.ASKED]
            if not waiting:
                return False
            min(waiting, key=lambda each: each.deadline).abort()
        self.callers.add(caller)
        return True

    def hold(self, count: int) -> bool:
        """Counts bytes that are held for a caller; False where there is no room for them."""
        if self.held_bytes + count > self.limits.held_bytes:
            return False
        self.held_bytes += count
        return True

    def ask(self, caller: "Caller", message: bytes) -> None:
        """Sends Triton a request, whose answer goes to `caller`."""
        while self._free:
            triton = self._free.pop()
            if triton.open:
                return triton.send(caller, message)
        task = self._loop.create_task(self._ask_anew(caller, message))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return None

    async def _ask_anew(self, caller: "Caller", message: bytes) -> None:
        triton, number = TritonConnection(self.keep), caller.asked
        try:
            await self._connect(lambda: triton)
        except OSError:
            if caller.awaits(number):
                caller.fail(NOT_READY)
            return
        if caller.awaits(number):
            triton.send(caller, message)
        else:
            self.keep(triton)

    def keep(self, triton: TritonConnection) -> None:
        """Takes back a connection to Triton that has no request under way."""
        if len(self._free) < KEPT and not self.draining:
            self._free.append(triton)
        else:
            triton.abort()

    def drain(self) -> None:
        """Lets the requests under way end, and their connections with them; Triton waits for every connection's end."""
        self.draining = True
        for triton in self._free:
            triton.abort()
        for caller in list(self.callers):
            if caller.phase in (Phase.IDLE, Phase.HEAD):
                caller.abort()

    def sweep(self) -> None:
        """Ends what takes too long."""
        now = self.now()
        for caller in [each for each in self.callers if each.deadline < now]:
            caller.expire()


class Caller(asyncio.Protocol):
    """A caller's connection: one request at a time, each read whole, asked, and answered."""

    def __init__(self, proxy: Proxy) -> None:
        self.phase = Phase.IDLE
        self.deadline = 0.0
        """The moment at which `phase` has taken too long."""
        self.asked = 0
        """Number of this connection's requests that Triton was asked."""
        self.triton: TritonConnection | None = None
        """The connection on which Triton was asked."""
        self._proxy = proxy
        self._limits = proxy.limits
        self._now = proxy.now
        self._writable = True
        self._early = b""
        """The beginning of a head, or of requests that came before the answer to the last."""
        self._held = 0
        self._body = bytearray()
        self._chunks: ChunkedBody | None = None
        self._more: tuple[bytes, ...] = ()
        """Questions to Triton that follow the one under way."""

    # What the loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._proxy.admit(self):
            self._enter(Phase.IDLE, self._limits.head_s)
        else:
            self._transport.write(TOO_MANY)
            self._transport.close()
            self.phase = Phase.LEAVING

    def data_received(self, data: bytes) -> None:
        phase = self.phase
        if phase is Phase.IDLE or phase is Phase.HEAD:
            self._read_head(self._early + data if self._early else data)
        elif phase is Phase.BODY:
            self._read_body(data)
        elif phase is not Phase.LEAVING:
            self._early += data
            if len(self._early) > FREE_BYTES:
                self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._proxy.callers.discard(self)
        self.phase = Phase.LEAVING
        self._give_up()
        self._release()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        if self.phase is Phase.ANSWERED:
            self._next()

    # What the proxy tells.

    def awaits(self, number: int) -> bool:
        """Tells whether the answer to this connection's request `number` is still waited for."""
        return self.phase is Phase.ASKED and self.asked == number

    def answer(self, answer: Answer, body: bytes | bytearray) -> None:
        """Takes Triton's answer."""
        self.triton = None
        if self._ask.route != "ping":
            self._reply(self._proxy.contract.told(answer, body), body)
        elif answer.status != HTTPStatus.OK:
            self._reply(NOT_READY)
        elif self._more:
            self._ask_triton(*self._more)
        else:
            self._reply(READY)

    def fail(self, whole_answer: bytes) -> None:
        """Takes the news that there will be no answer of Triton's."""
        self.triton = None
        self._reply(NOT_READY if self._ask.route == "ping" else whole_answer)

    def hold(self, count: int) -> bool:
        """Counts the bytes of a body or an answer; False where there is no room for them."""
        if count <= FREE_BYTES:
            return True
        self._held += count
        if self._proxy.hold(count):
            return True
        self._held -= count
        return False

    def expire(self) -> None:
        if self.phase is Phase.ASKED:
            self._give_up()
            self.fail(TOO_LATE)
        elif self.phase is Phase.HEAD or self.phase is Phase.BODY:
            self._refuse(TOO_SLOW)
        else:
            self.abort()

    def abort(self) -> None:
        self.phase = Phase.LEAVING
        self._proxy.callers.discard(self)
        self._transport.abort()

    # A request's way.

    def _read_head(self, data: bytes) -> None:
        end = data.find(contract.HEAD_END, 0, contract.MAX_HEAD_BYTES) + 4
        if end == 3:
            return self._keep_beginning(data)
        try:
            ask = self._ask = self._proxy.contract.read(data[:end])
            if ask.length is None:
                self._chunks = ChunkedBody(data[:end], self._limits.chunks)
        except Refused as refused:
            return self._refuse(refused.answer)
        length, have = ask.length, len(data) - end
        if length is not None and have >= length:
            self._early = data[end + length :] if have > length else b""
            return self._whole(data[end : end + length])
        if not self.hold(length or 0):
            return self._refuse(OUT_OF_ROOM)
        self._early = b""
        self._enter(Phase.BODY, self._limits.body_s)
        if ask.expects_continue and not have:
            self._transport.write(contract.CONTINUE)
        return self._read_body(data[end:]) if have else None

    def _keep_beginning(self, data: bytes) -> None:
        if len(data) >= contract.MAX_HEAD_BYTES:
            return self._refuse(HEAD_TOO_LARGE)
        self._early = data
        if self.phase is Phase.IDLE:
            self._enter(Phase.HEAD, self._limits.head_s)
        return None

    def _read_body(self, data: bytes) -> None:
        length = self._ask.length
        if self._chunks is not None or length is None:
            return self._read_chunks(data)
        missing = length - len(self._body)
        self._body += data[:missing] if len(data) > missing else data
        if len(data) >= missing:
            self._early = data[missing:]
            self._whole(self._body)
        return None

    def _read_chunks(self, data: bytes) -> None:
        assert self._chunks is not None
        try:
            added = self._chunks.feed(data, self._body)
        except Refused as refused:
            return self._refuse(refused.answer)
        # Chunked bodies are counted as they grow.
        if len(self._body) > FREE_BYTES and not self._grow(added):
            return self._refuse(OUT_OF_ROOM)
        if self._chunks.complete:
            self._whole(self._body)
        return None

    def _grow(self, count: int) -> bool:
        if not self._proxy.hold(count):
            return False
        self._held += count
        return True

    def _whole(self, body: bytes | bytearray) -> None:
        """Asks Triton: the request has arrived, and is one."""
        ask = self._ask
        if ask.route != "invocations":
            agreed = self._proxy.contract
            self._enter(Phase.ASKED, self._limits.ping_s)
            return self._ask_triton(*(agreed.ready_heads if ask.route == "ping" else (agreed.statistics_head,)))
        try:
            head = ask.message_head or self._proxy.contract.message_head(ask.content_type, len(body))
        except Refused as refused:
            return self._refuse(refused.answer)
        self._enter(Phase.ASKED, self._limits.invocation_s)
        return self._ask_triton(head + body)

    def _ask_triton(self, message: bytes, *more: bytes) -> None:
        self._more = more
        self.asked += 1
        self._proxy.ask(self, message)

    def _reply(self, head: bytes, body: bytes | bytearray = b"") -> None:
        if self._body:
            self._body = bytearray()
        if not self._ask.keep_alive or self._chunks is not None or self._proxy.draining:
            # After a chunked body there is no telling, from httptools, where the next request begins.
            end = head.index(contract.HEAD_END)
            return self._leave(head[:end] + b"\r\nConnection: close" + head[end:] + body)
        self._transport.write(head + body if body else head)
        if self._writable:
            self._next()
        else:
            self._enter(Phase.ANSWERED, self._limits.reading_s)
        return None

    def _next(self) -> None:
        """Turns to the next request, which may have come early."""
        if self._held:
            self._release()
        self._enter(Phase.IDLE, self._limits.idle_s)
        if self._early:
            if len(self._early) > FREE_BYTES:
                self._transport.resume_reading()
            early, self._early = self._early, b""
            self._read_head(early)

    def _refuse(self, whole_answer: bytes) -> None:
        self._body = bytearray()
        self._leave(whole_answer)

    def _leave(self, last: bytes) -> None:
        """Sends a last answer, and goes when the caller has gone, or soon."""
        self._early = b""
        self._enter(Phase.LEAVING, self._limits.linger_s)
        self._release()
        self._transport.write(last)
        self._transport.write_eof()

    def _give_up(self) -> None:
        if self.triton is not None:
            self.triton.abort()
            self.triton = None

    def _release(self) -> None:
        self._proxy.held_bytes -= self._held
        self._held = 0

    def _enter(self, phase: Phase, seconds: float) -> None:
        self.phase = phase
        self.deadline = self._now() + seconds
