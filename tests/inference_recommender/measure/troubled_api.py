"""A way to an AWS API that has troubles of its own: calls are throttled, dropped or refused before they get through.

Everything else is passed on, so that boto3 meets a real account behind it. `troubles` says how often each operation
(as X-Amz-Target names it) fails and how.
"""

import http.client
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

Trouble = Literal["throttled", "expired", "dropped", "lost"]
"""Dropped never gets through; lost does, and its answer does not come back."""
REFUSALS = {
    "throttled": ("ThrottlingException", "Rate exceeded"),
    "expired": ("ExpiredTokenException", "The security token included in the request is expired"),
}


class TroubledApi:
    def __init__(self, behind: str) -> None:
        self.troubles: dict[str, list[Trouble]] = {}
        self.calls: Counter[str] = Counter()
        """Operations that got through."""
        self._behind = urlsplit(behind)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://localhost:{self._server.server_address[1]}"

    @contextmanager
    def serving(self) -> Iterator["TroubledApi"]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def next_trouble(self, operation: str) -> Trouble | None:
        with self._lock:
            waiting = self.troubles.get(operation)
            if waiting:
                return waiting.pop(0)
            self.calls[operation] += 1
            return None

    def passed_on(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self._behind.hostname or "", self._behind.port, timeout=60)
        try:
            connection.request(request.command, request.path, body, dict(request.headers))
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                trouble = api.next_trouble(self.headers.get("X-Amz-Target", "").rpartition(".")[2])
                if trouble in ("dropped", "lost"):
                    if trouble == "lost":
                        api.passed_on(self, body)
                    self.close_connection = True
                elif trouble:
                    code, message = REFUSALS[trouble]
                    text = json.dumps({"__type": code, "message": message}).encode()
                    self._answer(400, {"Content-Type": "application/x-amz-json-1.1"}, text)
                else:
                    self._answer(*api.passed_on(self, body))

            do_GET = do_PUT = do_HEAD = do_POST  # noqa: N815 - as the base class names them

            def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """Quiet."""

        return Handler
