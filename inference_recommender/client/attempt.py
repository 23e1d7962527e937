"""The bounds of one attempt: the time of all that it does on its socket together, and the bytes of its answer.

A timeout of urllib3 or botocore counts for each operation on the socket, so that a server which sends a byte now and
then holds a caller as long as it likes. Connections of a pool class made by `bounded` ask the attempt of their thread
before each operation how much time is left:

    with Attempt(within_s=0.5, max_bytes=64 << 20) as attempt:
        pool.urlopen(...)               # TimeoutError after 0.5 s, whatever the server does

That costs a call of settimeout for each operation and no thread. What is not bounded is the look-up of a host's name:
it is the C library's, with limits of its own (resolv.conf, timeout and attempts).
"""

import http.client
import io
import socket
import ssl
import threading
import time
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CONNECT_TIMEOUT_S = 1.0
"""A host that does not answer a connection, or its TLS handshake, for so long is not there."""
TLS_RECORD_BYTES = 16_384
"""A TLS socket writes at most so many bytes at a time, and its timeout starts anew with each."""


class Attempt:
    """Bounds what this thread does within the block. `asked` says whether a part of the request was sent, `late` and
    `too_large` which bound was met.
    """

    __slots__ = ("_bytes_left", "_deadline_s", "asked", "late", "too_large")

    def __init__(self, *, within_s: float, max_bytes: int) -> None:
        self._deadline_s = time.monotonic() + within_s
        self._bytes_left = max_bytes
        self.asked = self.late = self.too_large = False

    def __enter__(self) -> Self:
        _thread.attempt = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _thread.attempt = None

    def left_s(self) -> float:
        """Returns the seconds that are left. Raises `TimeoutError` where none are."""
        left = self._deadline_s - time.monotonic()
        if left <= 0:
            self.late = True
            raise TimeoutError("the attempt's time is over")
        return left

    def received(self, count: int) -> None:
        """Raises `OSError` where the answer, with its headers, has become too large."""
        self._bytes_left -= count
        if self._bytes_left < 0:
            self.too_large = True
            raise OSError("the answer is too large")


class _Thread(threading.local):
    attempt: Attempt | None = None


_thread = _Thread()


class _Received(io.RawIOBase):
    """Bytes from a socket, within the bounds of the attempt of the thread that reads."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        if (attempt := _thread.attempt) is None:
            return self._raw.readinto(buffer)
        self._socket.settimeout(attempt.left_s())
        try:
            count = self._raw.readinto(buffer)
        except TimeoutError:
            attempt.late = True
            raise
        attempt.received(count or 0)
        return count

    def close(self) -> None:
        super().close()
        self._raw.close()

    def makefile(self, mode: str) -> io.BufferedReader:
        """Stands in for the socket where http.client makes a file of it."""
        return io.BufferedReader(self)


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(cast(socket.socket, _Received(sock)), *args, **options)


class _Bounded(HTTPConnection):
    """Goes before a connection class of urllib3 or botocore. Without an attempt in its thread it changes nothing."""

    response_class = _Response

    def _new_conn(self) -> socket.socket:
        """Connects to the host's first address that answers, all of them together within the bounds."""
        if (attempt := _thread.attempt) is None:
            return super()._new_conn()
        name = self._dns_host
        failure: Exception = NewConnectionError(self, f"{name} has no address")
        for address in self._addresses(name):
            try:
                self.timeout = min(CONNECT_TIMEOUT_S, attempt.left_s())
                self.host = address
                sock = super()._new_conn()
                sock.settimeout(min(CONNECT_TIMEOUT_S, attempt.left_s()))  # for the TLS handshake
            except TimeoutError as error:
                raise ConnectTimeoutError(self, f"Connection to {name} timed out") from error
            except (ConnectTimeoutError, NewConnectionError) as error:
                failure = error
            else:
                return sock
            finally:
                self.host = name
        raise failure

    def _addresses(self, name: str) -> list[str]:
        try:
            found = socket.getaddrinfo(name.strip("[]"), self.port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            raise NameResolutionError(self.host, self, cast(socket.gaierror, error)) from error
        return [str(address[0]) for *_, address in found]

    def send(self, data: Any) -> None:
        attempt = _thread.attempt
        if attempt is None or not isinstance(data, bytes):
            return super().send(data)
        if self.sock is None:
            self.connect()
        attempt.asked = True
        # A plain socket's timeout counts for the whole of sendall.
        size = TLS_RECORD_BYTES if isinstance(self.sock, ssl.SSLSocket) else len(data)
        try:
            for first in range(0, len(data), size):
                self.sock.settimeout(attempt.left_s())
                super().send(data if size >= len(data) else memoryview(data)[first : first + size])
        except TimeoutError:
            attempt.late = True
            raise
        return None


@cache
def bounded(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    """Returns a pool class like `pool` whose connections keep the bounds of their thread's attempt."""
    connection = cast(type, pool.ConnectionCls)
    if issubclass(connection, _Bounded):
        return pool
    kept = type(f"Bounded{connection.__name__}", (_Bounded, connection), {})
    return type(f"Bounded{pool.__name__}", (pool,), {"ConnectionCls": kept})


def bound_connections(client: Any) -> None:
    """Makes the connections of boto3's `client` keep the bounds. Its other users notice nothing.

    botocore has no public place for a connection class; tests/inference_recommender/client/test_bounds.py fails where a
    new version moves this one. What is no client of botocore's has no connections here.
    """
    if (session := getattr(getattr(client, "_endpoint", None), "http_session", None)) is None:
        return
    pools = {scheme: bounded(pool) for scheme, pool in session._pool_classes_by_scheme.items()}
    if pools != session._pool_classes_by_scheme:
        session._pool_classes_by_scheme = session._manager.pool_classes_by_scheme = pools
        session._manager.clear()
