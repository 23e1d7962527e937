"""S3 on loopback that first answers a script of errors."""

import base64
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FaultyS3:
    """One bucket. `faults` are the statuses and error codes of the next requests, by method, in order."""

    objects: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    checksums: Callable[[bytes], dict[str, str]] = lambda content: {"x-amz-checksum-sha256": sha256(content)}
    """Returns the checksums of an object, as headers."""
    damage: Callable[[bytes], bytes] = bytes
    """Changes content before it reaches the reader."""
    url: str = ""

    def fault(self, method: str) -> "tuple[int, str] | None":
        self.requests.append(method)
        script = self.faults.get(method)
        return script.pop(0) if script else None


@contextmanager
def faulty_s3() -> Iterator[FaultyS3]:
    account = FaultyS3()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if fault := account.fault("PUT"):
                self._refuse(*fault)
            elif self.headers.get("If-None-Match") == "*" and self.path in account.objects:
                self._refuse(412, "PreconditionFailed")
            elif self.headers.get("x-amz-checksum-sha256") != sha256(content):
                self._refuse(400, "BadDigest")
            else:
                account.objects[self.path] = content
                self._answer(200)

        def do_GET(self) -> None:
            self._read("GET")

        def do_HEAD(self) -> None:
            self._read("HEAD")

        def _read(self, method: str) -> None:
            if fault := account.fault(method):
                self._refuse(*fault)
            elif (content := account.objects.get(self.path)) is None:
                self._refuse(404, "NoSuchKey")
            else:
                wanted = self.headers.get("x-amz-checksum-mode") == "ENABLED"
                self._answer(200, account.damage(content), **(account.checksums(content) if wanted else {}))

        def _refuse(self, status: int, code: str) -> None:
            self._answer(status, f"<Error><Code>{code}</Code><Message>for a test</Message></Error>".encode())

        def _answer(self, status: int, content: bytes = b"", **headers: str) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    account.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield account
    finally:
        server.shutdown()
        server.server_close()


def sha256(content: bytes) -> str:
    return base64.b64encode(hashlib.sha256(content).digest()).decode()
