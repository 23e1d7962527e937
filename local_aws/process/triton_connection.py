"""The proxy's side towards Triton: a kept connection that asks one request at a time and reads its answer."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol, cast

from local_aws.process import container_contract as contract
from local_aws.process.container_contract import Answer

BUSY = contract.error(HTTPStatus.SERVICE_UNAVAILABLE, "The server is busy; ask again.")
GONE = contract.error(HTTPStatus.SERVICE_UNAVAILABLE, "Triton hung up.")
TOO_LONG = contract.error(
    HTTPStatus.INTERNAL_SERVER_ERROR, f"The model's answer is longer than {contract.MAX_BODY_BYTES} bytes."
)


class Asker(Protocol):
    """Who gets the answer to a request."""

    triton: "TritonConnection | None"

    def hold(self, count: int) -> bool:
        """Counts the bytes of a body or an answer; False where there is no room for them."""

    def answer(self, answer: Answer, body: bytes | bytearray) -> None:
        """Takes Triton's answer."""

    def fail(self, whole_answer: bytes) -> None:
        """Takes the news that there will be no answer of Triton's."""


class TritonConnection(asyncio.Protocol):
    """A kept connection to Triton, with at most one request under way."""

    def __init__(self, keep: Callable[["TritonConnection"], None]) -> None:
        self._keep = keep
        self._caller: Asker | None = None
        self._held = b""
        self._answer: Answer | None = None
        self._body = bytearray()
        self._transport: asyncio.Transport | None = None

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, caller: Asker, message: bytes) -> None:
        assert self._transport is not None
        self._caller = caller
        caller.triton = self
        self._transport.write(message)

    def abort(self) -> None:
        """Hangs up; Triton gives up the request that is under way."""
        self._caller = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(GONE)

    def data_received(self, data: bytes) -> None:
        if self._caller is None:
            return self.abort()
        if self._answer is not None:
            self._body += data
        else:
            data = self._held + data if self._held else data
            end = data.find(contract.HEAD_END) + 4
            if end == 3:
                self._held = data
                return self._fail(GONE) if len(data) > contract.MAX_HEAD_BYTES else None
            try:
                answer = contract.read_answer(data[:end])
            except (LookupError, ValueError):
                return self._fail(GONE)
            if answer.length > contract.MAX_BODY_BYTES:
                return self._fail(TOO_LONG)
            if len(data) - end == answer.length:
                return self._finish(answer, data[end:])
            if not self._caller.hold(answer.length):
                return self._fail(BUSY)
            self._answer, self._held = answer, b""
            self._body += data[end:]
        if len(self._body) >= self._answer.length:
            return self._finish(self._answer, self._body)
        return None

    def _finish(self, answer: Answer, body: bytes | bytearray) -> None:
        if len(body) != answer.length:
            return self._fail(GONE)
        caller, self._caller = self._caller, None
        if self._answer is not None or self._held:
            self._answer, self._body, self._held = None, bytearray(), b""
        if answer.keep_alive:
            self._keep(self)
        else:
            self.abort()
        assert caller is not None
        return caller.answer(answer, body)

    def _fail(self, whole_answer: bytes) -> None:
        caller = self._caller
        self.abort()
        if caller is not None:
            caller.fail(whole_answer)
