"""Serves the account on loopback: moto's dispatcher and our invocations behind werkzeug's threaded server.

It listens on every loopback address that `localhost` resolves to, on one port, and logs no requests. It does not know
what the account does.
"""

import errno
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

from local_aws.account import Account
from local_aws.sagemaker.runtime import InvocationMiddleware, Wsgi
from workloads import Unavailable

LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
UNSET = ("AWS_PROFILE", "AWS_SESSION_TOKEN")
"""Variables whose value could lead a tool past the account."""

log = logging.getLogger(__name__)


def exports(port: int, region: str) -> dict[str, str]:
    """Returns the environment in which boto3, the AWS CLI and the CDK CLI talk to the account."""
    return {
        # localhost, not 127.0.0.1: with an address moto misreads the S3 URL of a template.
        "AWS_ENDPOINT_URL": f"http://localhost:{port}",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": region,
        "AWS_REGION": region,  # the CDK CLI reads this one
        "AWS_EC2_METADATA_DISABLED": "true",  # no tool may wait for a metadata service
    }


def as_shell(values: Mapping[str, str]) -> str:
    return "\n".join([f"unset {' '.join(UNSET)}", *(f"export {name}={value}" for name, value in values.items())])


class QuietHandler(MotoRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Logs nothing: the account logs what it does itself."""


class AccountServer:
    """Serves an installed account from `start` to `close`."""

    def __init__(self, account: Account, port: int) -> None:
        """Raises `Unavailable` where the port is taken."""
        application = InvocationMiddleware(
            _ErrorsAsJson(DomainDispatcherApplication(create_backend_app)),
            account.find_endpoint,
            account.metrics,
            account.settings.account_id,
        )
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        sockets = listening_sockets(port)
        self.port = int(sockets[0].getsockname()[1])
        self._servers = [_server(each, application) for each in sockets]
        self._threads = [threading.Thread(target=each.serve_forever, daemon=True) for each in self._servers]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


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


def _server(bound: socket.socket, application: Wsgi) -> BaseWSGIServer:
    host, port = bound.getsockname()[:2]
    server = make_server(host, port, application, threaded=True, request_handler=QuietHandler, fd=bound.fileno())
    bound.close()  # werkzeug listens on its own copy of the descriptor
    server.daemon_threads = True  # type: ignore[attr-defined]
    return server


class _ErrorsAsJson:
    """Tells the caller in one sentence what moto cannot do, instead of a page of traceback."""

    def __init__(self, application: Any) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            return list(self._application(environ, start_response))
        except Exception as error:
            known = isinstance(error, NotImplementedError)
            text = f"This local account cannot do this: {error}." if known else f"{type(error).__name__}: {error}"
            log.info(f"{environ.get('HTTP_X_AMZ_TARGET') or environ.get('PATH_INFO')}: {text}")
            headers = [("Content-Type", "application/json"), ("x-amzn-errortype", "NotImplemented")]
            body = json.dumps({"__type": "NotImplemented" if known else "InternalFailure", "message": text})
            start_response("501 Not Implemented" if known else "500 Internal Server Error", headers)
            return [body.encode()]
