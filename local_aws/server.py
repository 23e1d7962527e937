"""Serves the account on every loopback address of `localhost`: moto's dispatcher and the invocations of endpoints.

werkzeug's threaded server gets limits. A connection has a thread. A caller that sends nothing, or a byte now and then,
is cut off at a deadline. If all places are taken, the connection that has been silent longest is closed.
"""

import contextlib
import errno
import io
import logging
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from email.errors import MissingHeaderBodySeparatorDefect
from json import JSONDecodeError
from typing import Any
from xml.parsers.expat import ExpatError

from botocore.model import OperationNotFoundError
from moto.core.parse import RequestParserError
from moto.moto_server import werkzeug_app
from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import ThreadedWSGIServer

from local_aws.account import Account
from local_aws.owner_only import AccountKeys, OwnerOnly, WsgiApplication, answer
from local_aws.permissions.enforced import EnforcedPermissions
from local_aws.sagemaker.runtime import InvocationMiddleware, max_body_bytes
from local_aws.signature import RequestRefused
from workloads import Unavailable

LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    connections: int = 256
    headers_s: float = 10.0
    request_s: float = 300.0
    answer_s: float = 300.0
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
    """Reads a request until its deadline, and rejects malformed requests that werkzeug would accept or fail to read."""

    server: LimitedServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.rfile.close()  # a file of the socket's own, whose deadline would begin again with every byte
        self._receiving = _Receiving(self.connection, self.server.limits.headers_s)
        self.rfile = io.BufferedReader(self._receiving)

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if not self.path.startswith("/"):  # werkzeug could fail to read a whole URL
            self.send_error(400, "The path of a request begins with a slash")
        elif any(isinstance(each, MissingHeaderBodySeparatorDefect) for each in self.headers.defects):
            self.send_error(400, "A header is not of the form Name: value")  # Python drops it and all after it
        else:
            return True
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
    resolved = {family for family, *_ in socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM)}
    for family in sorted({socket.AF_INET} | (resolved & LOOPBACK.keys())):
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


UNSET = ("AWS_PROFILE", "AWS_SESSION_TOKEN")
"""Variables that could direct a tool to another account."""
ERROR_CHARACTERS = 1000

# moto would allow every web page's origin. It reads MOTO_DISABLE_GLOBAL_CORS into this when it is first imported.
werkzeug_app.DISABLE_GLOBAL_CORS = True  # type: ignore[attr-defined]

log = logging.getLogger(__name__)


def exports(port: int, region: str, keys: AccountKeys) -> dict[str, str]:
    """Returns the environment in which boto3, the AWS CLI and the CDK CLI talk to the account."""
    return {
        # localhost, not 127.0.0.1: with an address moto misreads the S3 URL of a template.
        "AWS_ENDPOINT_URL": f"http://localhost:{port}",
        "AWS_ACCESS_KEY_ID": keys.access_key_id,
        "AWS_SECRET_ACCESS_KEY": keys.secret_access_key,
        "AWS_DEFAULT_REGION": region,
        "AWS_REGION": region,  # the CDK CLI reads this one
        "AWS_EC2_METADATA_DISABLED": "true",  # no tool may wait for a metadata service
    }


def as_shell(values: Mapping[str, str]) -> str:
    exported = (f"export {name}={shlex.quote(value)}" for name, value in values.items())
    return "\n".join([f"unset {' '.join(UNSET)}", *exported])


class AccountServer:
    """Serves an installed account from `start` to `close`."""

    def __init__(self, account: Account, port: int) -> None:
        """Raises `Unavailable` where the port is taken."""
        self.keys = AccountKeys()
        settings = account.settings
        answering = InvocationMiddleware(
            werkzeug_app.DomainDispatcherApplication(werkzeug_app.create_backend_app),
            account.find_endpoint,
            account.metrics,
            settings.account_id,
        )
        enforced = EnforcedPermissions(answering, account.calls, settings.account_id)
        application = OwnerOnly(error_sentences(enforced), self.keys, body_limit=max_body_bytes)
        sockets = listening_sockets(port)
        self.port = int(sockets[0].getsockname()[1])
        self._servers = [LimitedServer(each, application) for each in sockets]
        for each in sockets:
            each.close()  # werkzeug listens on its own copy of the descriptor
        self._threads = [threading.Thread(target=each.serve_forever, daemon=True) for each in self._servers]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


def error_sentences(application: WsgiApplication) -> WsgiApplication:
    """Answers errors of moto in one sentence, instead of a page of traceback."""

    def application_in_sentences(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            return list(application(environ, start_response))
        except NotImplementedError as error:
            refused = RequestRefused(501, "NotImplemented", f"This local account cannot do this: {error}.")
        except OperationNotFoundError as error:
            refused = RequestRefused(400, "UnknownOperationException", f"There is no such operation: {error}.")
        except (UnicodeDecodeError, JSONDecodeError, ExpatError, RequestParserError, RecursionError) as error:
            refused = RequestRefused(400, "SerializationException", f"The request's body cannot be read: {error}.")
        except Exception as error:  # 501, because clients repeat a 500, and the same request would fail again
            log.info(f"moto failed: {type(error).__name__}")
            reason = f"there is no {error}" if isinstance(error, KeyError) else str(error) or "no reason is known"
            message = (
                f"This local account cannot answer this request: {reason[:ERROR_CHARACTERS]}. Check its parameters. If "
                "they are correct, moto, which answers for AWS here, does not support them."
            )
            refused = RequestRefused(501, "NotImplemented", message)
        log.info(f"{environ.get('HTTP_X_AMZ_TARGET') or environ.get('PATH_INFO')}: {refused.message}")
        return answer(refused, environ, start_response)

    return application_in_sentences
