"""werkzeug's threaded server with limits on connections and on the time of each.

A connection has a thread. A caller that sends nothing, or a byte now and then, is cut off at a deadline. If all places
are taken, the connection that has been silent longest is closed, so silent callers cannot keep out others.
"""

import contextlib
import errno
import io
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any

from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import ThreadedWSGIServer

from workloads import Unavailable

LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    connections: int = 256
    headers_s: float = 10.0
    """Within which the request's line and headers have arrived."""
    request_s: float = 300.0
    """Within which the body has arrived."""
    answer_s: float = 300.0
    """Within which the caller has taken the answer."""
    rest_s: float = 2.0
    """How long bytes after the request are read and dropped, so that the caller sees the answer."""


class LimitedServer(ThreadedWSGIServer):
    """Serves on a listening socket, of which it keeps a copy."""

    daemon_threads = True

    def __init__(self, bound: socket.socket, application: Any, limits: ConnectionLimits | None = None) -> None:
        self.limits = limits or ConnectionLimits()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._silent: dict[socket.socket, None] = {}  # in the order in which they came
        host, port = bound.getsockname()[:2]
        super().__init__(host, port, application, Handler, fd=bound.fileno())

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._make_room():
            with contextlib.suppress(OSError):
                request.setblocking(False)
                request.send(BUSY)
            request.close()
            return
        with self._lock:
            self._open.add(request)
            self._silent[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
            self._silent.pop(request, None)
        super().shutdown_request(request)

    def has_spoken(self, connection: socket.socket) -> None:
        """Marks a connection that has sent a request, so that it is not closed for another."""
        with self._lock:
            self._silent.pop(connection, None)

    def _make_room(self) -> bool:
        with self._lock:
            if len(self._open) < self.limits.connections:
                return True
            oldest = next(iter(self._silent), None)
            if oldest is None:
                return False
            del self._silent[oldest]
            self._open.discard(oldest)
        with contextlib.suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and closes it
        return True


class Handler(MotoRequestHandler):
    """Reads a request until its deadline, and rejects a target without a path before werkzeug reads it."""

    server: LimitedServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.rfile.close()  # a file of the socket's own, whose deadline would begin again with every byte
        self._receiving = _Receiving(self.connection, self.server.limits.headers_s)
        self.rfile = io.BufferedReader(self._receiving)

    def parse_request(self) -> bool:
        if super().parse_request() and self.path.startswith("/"):
            return True
        if not self.close_connection:  # a whole URL, which werkzeug could fail to read
            self.send_error(400, "A request names a path, which begins with a slash")
        return False

    def run_wsgi(self) -> None:
        self.server.has_spoken(self.connection)
        self._receiving.allow(self.server.limits.request_s)
        super().run_wsgi()

    def make_environ(self) -> dict[str, Any]:
        environ = super().make_environ()
        lengths = self.headers.get_all("Content-Length", [])
        if len(lengths) > 1:  # werkzeug would take the last
            environ["CONTENT_LENGTH"] = ", ".join(lengths)
        return environ

    def send_response(self, code: int, message: str | None = None) -> None:
        self._receiving.allow(self.server.limits.rest_s)
        self.connection.settimeout(self.server.limits.answer_s)
        super().send_response(code, message)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Logs nothing: the account logs what it does itself."""

    def log(self, type: str, message: str, *args: Any) -> None:
        """Logs nothing: malformed requests would fill the log."""


class _Receiving(io.RawIOBase):
    """Reads from a socket until a deadline, however slowly the bytes come. Raises TimeoutError then."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        super().__init__()
        self._connection = connection
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request did not arrive in time")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


def listening_sockets(port: int) -> list[socket.socket]:
    """Listens on each loopback address of `localhost`, all on the same port; 0 picks a free one."""
    bound: list[socket.socket] = []
    for family in sorted(_families()):
        each = socket.socket(family, socket.SOCK_STREAM)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            each.bind((LOOPBACK[family], bound[0].getsockname()[1] if bound else port))
            each.listen(128)
        except OSError as error:
            each.close()
            if error.errno == errno.EADDRINUSE:
                for other in bound:
                    other.close()
                raise Unavailable(
                    f"Port {port} of localhost is taken by another process. Stop that process, or choose another port "
                    "with `python -m local_aws --port N` (0 picks a free one)."
                ) from error
            if bound:  # IPv6 resolves but is switched off: IPv4 is enough
                continue
            raise
        bound.append(each)
    return bound


def _families() -> set[socket.AddressFamily]:
    families = {family for family, *_ in socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM)}
    return {socket.AF_INET} | (families & LOOPBACK.keys())
