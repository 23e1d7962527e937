"""Stands in for Triton behind the proxy: `python stand_in_triton.py SOCKET`. Answers a POST with the POST's own body.

A request that the proxy should not have made ends it, and so the test.
"""

import contextlib
import re
import socketserver
import sys

HEAD = re.compile(
    rb"GET /v2/(health|models/echo)/ready HTTP/1\.1\r\nHost: localhost\r\n\r\n"
    rb"|POST /v2/models/echo/infer HTTP/1\.1\r\nHost: localhost\r\n(Inference-Header-Content-Length: \d+\r\n)?"
    rb"Content-Length: (?P<length>\d+)\r\n\r\n"
)


class Handler(socketserver.StreamRequestHandler):
    wbufsize = -1

    def handle(self) -> None:
        while head := self._head():
            request = HEAD.fullmatch(head)
            if request is None:
                print(f"not a request of the proxy's: {head!r}", file=sys.stderr, flush=True)
                self.server.shutdown()
                return
            body = self.rfile.read(int(request["length"] or 0))
            answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            self.wfile.write(answer % len(body) + body)
            self.wfile.flush()

    def _head(self) -> bytes:
        lines = []
        while line := self.rfile.readline(65_536):
            lines.append(line)
            if line == b"\r\n":
                return b"".join(lines)
        return b""

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request: object, client_address: object) -> None:
        """The proxy hung up, as it does for a caller that is gone."""


if __name__ == "__main__":
    with Server(sys.argv[1], Handler) as server:
        server.serve_forever(0.05)
