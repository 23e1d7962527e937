"""HTTP to a server on a Unix socket with urllib3, for single requests outside a load."""

import socket
from typing import Any
from urllib.parse import quote, urlsplit

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import NewConnectionError

from inference_recommender.load_generator.requests import Target


class _SocketConnection(HTTPConnection):
    def __init__(self, *, path: str, **options: Any) -> None:
        super().__init__(**options)
        self._path = path

    def _new_conn(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(self.timeout)
        try:
            connection.connect(self._path)
        except OSError as error:
            connection.close()
            raise NewConnectionError(self, f"{self._path} refuses connections: {error}") from error
        return connection


class _SocketPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _SocketConnection


def socket_url(socket: str, path: str) -> str:
    """Returns the URL of a path that the server on `socket` serves."""
    return f"http+unix://{quote(socket, safe='')}{path}"


def connection_pool(url: str, **options: Any) -> urllib3.HTTPConnectionPool:
    """Returns urllib3's pool of connections to the server of an `http`, `https` or `http+unix` URL."""
    target = Target.of(url)
    if target.socket is not None:
        return _SocketPool(target.host, path=target.socket, **options)
    pool = urllib3.HTTPSConnectionPool if target.tls else urllib3.HTTPConnectionPool
    return pool(target.host, target.port, **options)


def request(method: str, url: str, **options: Any) -> urllib3.BaseHTTPResponse:
    """Sends one request. Raises `urllib3.exceptions.HTTPError`."""
    parts = urlsplit(url)
    with connection_pool(url) as pool:
        return pool.request(method, f"{parts.path}?{parts.query}" if parts.query else parts.path, **options)
