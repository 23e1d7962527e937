"""A loopback HTTP server whose answers a test chooses, to point the load generator at."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

INFERENCE = b'{"outputs":[{"name":"OUTPUT","datatype":"FP32","shape":[1],"data":[1.0]}]}'
"""A KServe v2 response."""
Answer = Callable[[bytes], tuple[int, bytes]]


class UnixHttpServer(ThreadingHTTPServer):
    """An HTTP server on a Unix socket."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "localhost", 0


@dataclass
class Server:
    httpd: ThreadingHTTPServer
    scheme: str = "http"
    socket_path: Path | None = None
    seen: list[bytes] = field(default_factory=list)
    heads: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and headers of each request."""
    connections: int = 0

    @property
    def root(self) -> str:
        if self.socket_path is not None:
            return f"http+unix://{quote(str(self.socket_path), safe='')}"
        return f"{self.scheme}://127.0.0.1:{self.httpd.server_port}"

    @property
    def url(self) -> str:
        return f"{self.root}/invocations"

    def die(self) -> None:
        """Stops listening and cuts every connection, as a killed process does."""
        self.httpd.shutdown()
        self.httpd.server_close()


@contextmanager
def serving(
    answer: Answer = lambda body: (200, INFERENCE),
    delay_s: float = 0.002,
    tls: ssl.SSLContext | None = None,
    idle_s: float | None = None,
    socket_path: Path | None = None,
) -> Iterator[Server]:
    """Serves on a free port of loopback, or on the Unix socket `socket_path`.

    `idle_s`: the server closes a connection that had no request for this many seconds.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = idle_s
        disable_nagle_algorithm = (
            socket_path is None
        )  # head and body are two writes: a body would wait 40 ms for a delayed ACK

        def setup(self) -> None:
            super().setup()
            server.connections += 1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.seen.append(body)
            server.heads.append((self.path, dict(self.headers.items())))
            time.sleep(delay_s)
            status, content = answer(body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            if not alive.is_set():
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """No-op: a test's output stays its own."""

    alive = threading.Event()
    alive.set()
    if socket_path is not None:
        httpd: ThreadingHTTPServer = UnixHttpServer(str(socket_path), Handler)  # type: ignore[arg-type]
    else:
        httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    if tls:
        httpd.socket = tls.wrap_socket(httpd.socket, server_side=True, do_handshake_on_connect=False)
    server = Server(httpd, "https" if tls else "http", socket_path)
    thread = threading.Thread(target=lambda: httpd.serve_forever(0.05), daemon=True)
    thread.start()
    original = server.die

    def die() -> None:
        alive.clear()
        original()

    server.die = die  # type: ignore[method-assign]
    try:
        yield server
    finally:
        if alive.is_set():
            die()
        thread.join()
