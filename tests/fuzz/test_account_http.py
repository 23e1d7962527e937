"""Hostile requests to the local account: over the wire, at its guard, and behind it with the owner's own key.

Nothing gets past the guard without a signature, and no input is answered with a 5xx. The server's handler reads from
one end of a pair of sockets, in this thread, so that nothing here waits.
"""

import contextlib
import io
import socket
import string
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from local_aws.server import ConnectionLimits, Handler, LimitedServer
from tests.fuzz import examples
from tests.local_aws.wsgi_calls import HOST, KEYS, Spy, ask, environ_of, guarded, signed_headers

SENT_AT_MOST = 100_000
"""Bytes of an answer that a pair of sockets holds without a reader."""

NAMES = [
    *["Host", "Origin", "Authorization", "Date", "Expect", "Sec-Fetch-Site", "X-Moto-Account-Id", "X-Amz-Target"],
    *["Content-Type", "Content-Length", "Transfer-Encoding", "Content-Encoding", "X-Amz-Content-SHA256", "X-Amz-Date"],
]
SCOPE = f"{KEYS.access_key_id}/20260101/us-east-1/s3/aws4_request"
VALUES = [
    *f"{HOST} localhost evil chunked none cross-site 0 5 -1 99999999999999999999 1e3 gzip application/json".split(),
    *["20260101T000000Z", "99999999T999999Z", "AWS4-HMAC-SHA256", "UNSIGNED-PAYLOAD", "100-continue"],
    "AWS4-HMAC-SHA256 Credential=////aws4_request",
    f"AWS4-HMAC-SHA256 Credential={SCOPE}, SignedHeaders=host, Signature={'0' * 64}",
    f"AWS {KEYS.access_key_id}:signature",
    "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
]
PARAMETERS = ["Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature", "Security-Token"]
PARAMETER_VALUES = ["AWS4-HMAC-SHA256", "20260101T000000Z", "9" * 13, "60", "host", KEYS.access_key_id, SCOPE]
PATHS = ["/", "/moto-api/reset", "/bucket/key", "/endpoints/e/invocations", "//", "/%2e%2e/%00", "/[", "*", "x"]

latin = st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=40)
names, values = st.sampled_from(NAMES), latin | st.sampled_from(VALUES)
headers = st.dictionaries(names, values, max_size=8)
methods = st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW", "X" * 50])
parameter = st.tuples(st.sampled_from(PARAMETERS), st.sampled_from(PARAMETER_VALUES) | st.text(max_size=20))
query = st.lists(parameter.map(lambda pair: f"X-Amz-{pair[0]}={pair[1]}"), max_size=6).map("&".join)
paths = st.sampled_from(PATHS) | st.text(string.printable.strip(), max_size=30).map("/".__add__)
targets = st.builds(lambda path, parameters: f"{path}?{parameters}" if parameters else path, paths, query)
lines = st.builds(lambda name, value: f"{name}: {value}".encode("latin-1"), names, values) | st.binary()
wire = st.builds(
    lambda line, sent, end, body: b"\r\n".join([" ".join(line).encode("latin-1", "replace"), *sent, end]) + body,
    st.tuples(methods, targets, st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.1 x", "", "FTP/1.1"])),
    st.lists(lines, max_size=6),
    st.sampled_from([b"\r\n", b"\n", b"", b"\r\n\r\n"]),
    st.binary(max_size=80) | st.sampled_from([b"5\r\nhello\r\n0\r\n\r\n", b"5\r\nhel", b"zz\r\n", b"-1\r\n"]),
)


@given(methods, targets, headers, st.binary(max_size=200))
@examples(60)
def test_nothing_gets_past_the_guard_without_the_key(
    method: str, target: str, sent: dict[str, str], body: bytes
) -> None:
    spy = Spy()
    answer = ask(guarded(spy, max_body_bytes=100), environ_of(method, target, {"Host": HOST, **sent}, body))
    assert spy.environs == []
    assert 400 <= answer.status < 500


@given(methods, targets, headers, st.binary(max_size=150))
@examples(50)
def test_a_signed_request_is_forwarded_unchanged_or_refused(
    method: str, target: str, sent: dict[str, str], body: bytes
) -> None:
    spy, path = Spy(), target.partition("?")[0]
    environ = environ_of(method, path, {**signed_headers(method, "/", body), **sent}, body)
    answer = ask(guarded(spy, max_body_bytes=100), environ)
    assert answer.status == 200 or 400 <= answer.status < 500
    assert spy.bodies in ([], [body])


@given(st.one_of(wire, st.binary(max_size=300)))
@examples(60)
def test_bytes_on_the_wire_never_make_the_server_fail(sent: bytes) -> None:
    spy = Spy()
    answer = over_the_wire(guarded(spy, max_body_bytes=100), sent)
    assert spy.environs == []
    status = answer.split(b" ", 2)[1] if answer.startswith(b"HTTP/") else b"none"
    # 501 and 505 tell of a method and of a version that no server has to know.
    assert status in (b"none", b"100") or status.startswith(b"4") or status == b"505", answer


def test_a_signed_request_over_the_wire_is_answered() -> None:
    """Makes sure that the fuzzed way is one on which a request can arrive."""
    spy, headers = Spy(), signed_headers("PUT", "/bucket/key", b"body", service="s3")
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    answer = over_the_wire(guarded(spy), f"PUT /bucket/key HTTP/1.1\r\n{head}\r\n".encode() + b"body")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert spy.bodies == [b"body"]


def over_the_wire(application: Any, sent: bytes) -> bytes:
    """Returns what the server's handler answers to a caller that sends `sent` and then its end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(sent)
        ours.shutdown(socket.SHUT_WR)
        server = _server(application)
        with contextlib.redirect_stderr(io.StringIO()) as errors, patch.object(socket.socket, "setsockopt"):
            Handler(theirs, ("127.0.0.1", 1), server)
        assert errors.getvalue() == ""
        theirs.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: ours.recv(SENT_AT_MOST), b""))


def _server(application: Any) -> LimitedServer:
    server: Any = SimpleNamespace(
        app=application,
        limits=ConnectionLimits(),
        has_spoken=lambda connection: None,
        ssl_context=None,
        multithread=True,
        multiprocess=False,
        passthrough_errors=True,
        server_address=("127.0.0.1", 5055),
        _server_version="test",
        log=lambda *_: None,
    )
    return server  # type: ignore[no-any-return]
