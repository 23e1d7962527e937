"""Starts a real Triton without the seconds that answer no request.

By default, Triton starts every Python model twice, the first time only to complete its configuration, and waits whole
seconds for the models' end. Here the configurations are complete, and the tests of the local account start Triton with
the container's own defaults.

Triton's own HTTP API is on a socket in its private folder; `read_json` asks it there, and `over_tcp` leads to it for
clients that need a URL. Triton counts a request after it has sent the answer, so who has the answer may read a count
without it: `await_counts` waits for what a test expects.
"""

import contextlib
import http.client
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from local_aws.process.triton import TritonServer

EXTRA = "SAGEMAKER_TRITON_ADDITIONAL_ARGS"
FLAGS = "--disable-auto-complete-config --exit-timeout-secs=0"
COUNTED_WITHIN_S = 60.0
"""Bounds the wait for counts that never come; they come in milliseconds, but on a machine without a free core."""


def start_triton(repository: Path, default_model: str, environment: Mapping[str, str] | None = None) -> TritonServer:
    """Starts a server whose log is beside the repository."""
    given, log_file = environment or {}, repository.with_name("triton.log")
    flags = f"{FLAGS} {given.get(EXTRA, '')}"
    variables = {**given, EXTRA: flags}
    return TritonServer.start(repository, default_model=default_model, environment=variables, log_file=log_file)


def read_json(server: TritonServer, path: str) -> Any:
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    with contextlib.closing(connection):
        connection.sock.connect(str(server.socket))
        connection.request("GET", path)
        return json.load(connection.getresponse())


def statistics(server: TritonServer, model: str) -> dict[str, Any]:
    """Returns what Triton counted for a model: an item of `model_stats`."""
    (counted,) = read_json(server, f"/v2/models/{model}/stats")["model_stats"]
    return dict(counted)


def await_counts(read: Callable[[], Any], expected: Any) -> None:
    """Asserts that what `read` makes of the statistics is, or becomes, the expected value."""
    deadline = time.monotonic() + COUNTED_WITHIN_S
    while (found := read()) != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found == expected, f"Triton counted {found}, and {expected} was expected"


@contextlib.contextmanager
def over_tcp(server: TritonServer) -> Iterator[str]:
    """Yields a URL of Triton's own HTTP API on loopback, without a proxy: each connection is one to its socket."""

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as triton:
                triton.connect(str(server.socket))
                back = threading.Thread(target=_pump, args=(triton, self.request), daemon=True)
                back.start()
                _pump(self.request, triton)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay) as relay:
        relay.daemon_threads = True
        threading.Thread(target=relay.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{relay.server_address[1]}"
        relay.shutdown()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
