"""Requests to the account's WSGI layers, within this process: signed by botocore, changed by tests."""

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPMessage
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from local_aws.owner_only import AccountKeys, OwnerOnly, WsgiApplication

KEYS = AccountKeys()
HOST = "localhost:5055"


@dataclass
class Spy:
    """An application that remembers what reaches it, and answers 200."""

    bodies: list[bytes] = field(default_factory=list)
    environs: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        self.environs.append(environ)
        self.bodies.append(environ["wsgi.input"].read())
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"answered"]


@dataclass(frozen=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    body: bytes


def ask(application: Any, environ: dict[str, Any]) -> Answered:
    """Calls a WSGI application as a server does."""
    told: list[tuple[str, list[tuple[str, str]]]] = []
    body = b"".join(application(environ, lambda status, headers: told.append((status, headers))))
    ((status, headers),) = told
    return Answered(int(status.split()[0]), dict(headers), body)


def guarded(spy: WsgiApplication, **options: Any) -> OwnerOnly:
    return OwnerOnly(spy, KEYS, **options)


def environ_of(
    method: str, target: str, headers: Mapping[str, str], body: bytes = b"", stream: Any = None
) -> dict[str, Any]:
    """Returns the WSGI environment that werkzeug makes of a request."""
    path, _, query = target.partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "RAW_URI": target,
        "PATH_INFO": unquote(path, "latin-1"),
        "QUERY_STRING": query,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "5055",
        "wsgi.url_scheme": "http",
        "wsgi.input": stream or io.BytesIO(body),
    }
    for name, value in headers.items():
        key = name.upper().replace("-", "_")
        environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value
    return environ


def signed_headers(
    method: str,
    target: str,
    body: bytes = b"",
    *,
    service: str = "sagemaker",
    headers: Mapping[str, str] | None = None,
    key: str = KEYS.access_key_id,
    secret: str = KEYS.secret_access_key,
) -> dict[str, str]:
    """Returns the headers with which botocore would send a request."""
    request = AWSRequest(method, f"http://{HOST}{target}", {"Host": HOST, **(headers or {})}, body)
    (S3SigV4Auth if service == "s3" else SigV4Auth)(Credentials(key, secret), service, "us-east-1").add_auth(request)
    return {**dict(request.headers.items()), "Content-Length": str(len(body))}


def signed(method: str, target: str, body: bytes = b"", **options: Any) -> dict[str, Any]:
    return environ_of(method, target, signed_headers(method, target, body, **options), body)


def of_url(method: str, url: str, headers: Mapping[str, str] | HTTPMessage | None = None) -> dict[str, Any]:
    """Returns the environment of a request for a presigned URL."""
    parts = urlsplit(url)
    return environ_of(method, f"{parts.path}?{parts.query}", {"Host": parts.netloc, **dict(headers or {})})


def unsent(client: Any, operation: str, **parameters: Any) -> tuple[str, str, dict[str, str], bytes]:
    """Returns method, target, headers and body of the request that a client of botocore would send."""
    sent: list[Any] = []

    def take(request: Any, **_: Any) -> None:
        sent.append(request)
        raise KeyboardInterrupt

    client.meta.events.register("before-send.*.*", take)
    with pytest.raises(KeyboardInterrupt):
        client._make_api_call(operation, parameters)
    client.meta.events.unregister("before-send.*.*", take)
    (request,) = sent
    url, body = urlsplit(request.url), request.body or b""
    body = body.read() if hasattr(body, "read") else body.encode() if isinstance(body, str) else body
    headers = {name: value.decode() if isinstance(value, bytes) else value for name, value in request.headers.items()}
    target = url.path + (f"?{url.query}" if url.query else "")
    return request.method, target, {**headers, "Host": url.netloc}, body
