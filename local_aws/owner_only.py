"""The outermost WSGI layer: it answers the account's owner alone, and passes whole, bounded, verified requests on.

It refuses what a web page sends (an Origin, a page's Sec-Fetch-Site), a Host that is not this machine's loopback (a
name that was made to resolve there), moto's own side doors, and every request without a signature of one of the
account's keys. A request's body is read only for a known key, whole, and within bounds: of one body, and of all that
are held at once. What it passes on has a Content-Length, however it came.

It does not know what is asked for, and logs the first refusal of each kind only, so that a caller cannot fill the log.
"""

import contextlib
import hashlib
import http
import io
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape

from moto.core.request import PRESERVED_HEADER_NAMES_ENVIRON_KEY

from local_aws import signature
from local_aws.keys import AccountKeys
from local_aws.signature import Call, Refusal

MAX_BODY_BYTES = 1 << 30
"""Bound of one request's body. Clients upload larger objects in parts."""
MAX_HELD_BYTES = 2 << 30
"""Bound of all bodies that are read or worked on at once."""
CHUNK_BYTES = 1 << 20

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
BodyLimit = Callable[[str], int | None]
"""Returns the bound of a body by its path, where that is less than `MAX_BODY_BYTES`."""

_HOST = re.compile(r"(?:(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?\.)?localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?", re.I)
_LENGTH = re.compile(r"[0-9]{1,15}")
_XML_SERVICES = signature.S3_SERVICES | {"cloudfront", "route53"}

log = logging.getLogger(__name__)


class OwnerOnly:
    """Answers refusals itself, and passes every other request on to `application`."""

    def __init__(
        self,
        application: Wsgi,
        keys: AccountKeys,
        *,
        body_limit: BodyLimit = lambda path: None,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_held_bytes: int = MAX_HELD_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._application = application
        self._keys = keys
        self._body_limit = body_limit
        self._max_body_bytes = max_body_bytes
        self._held = _HeldBytes(max_held_bytes)
        self._clock = clock
        self._told: set[str] = set()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self._held.released() as held:
            try:
                self._admit(environ, held)
            except Refusal as refusal:
                self._tell(refusal)
                return answer(refusal, environ, start_response)
            return list(self._application(environ, start_response))

    def _admit(self, environ: dict[str, Any], held: "_Share") -> None:
        """Verifies the request and replaces its body by one that is whole. Raises `Refusal`."""
        _check_origin(environ)
        call = _call(environ)
        claim = signature.read(call)
        environ[_SERVICE] = claim.service
        secret = self._keys.secret_of(claim.access_key, claim.token)
        if secret is None:
            code = "InvalidAccessKeyId" if claim.service in signature.S3_SERVICES else "InvalidClientTokenId"
            raise Refusal(403, code, f"The access key is none of this local account's. {signature.HOW_TO_SIGN}")
        body = self._read(environ, held)
        claim.check(call, secret, hashlib.sha256(body).hexdigest(), self._clock())
        environ[CLAIM] = claim
        environ["wsgi.input"] = io.BytesIO(body)
        environ["wsgi.input_terminated"] = True
        if environ.pop("HTTP_TRANSFER_ENCODING", None) is not None:
            environ["CONTENT_LENGTH"] = str(len(body))

    def _read(self, environ: Mapping[str, Any], held: "_Share") -> bytes:
        limit = min(self._body_limit(environ.get("PATH_INFO", "")) or self._max_body_bytes, self._max_body_bytes)
        length = _content_length(environ)
        if length is not None and length > limit:
            raise _too_long(limit)
        chunks, total, stream = list[bytes](), 0, environ["wsgi.input"]
        try:
            while total != length and (chunk := stream.read(_next(total, length, limit))):
                total += len(chunk)
                if total > limit:
                    raise _too_long(limit)
                held.add(len(chunk))
                chunks.append(chunk)
        except TimeoutError as error:
            raise Refusal(408, "RequestTimeout", "The request's body did not arrive in time.") from error
        except (OSError, ValueError) as error:
            raise Refusal(400, "IncompleteBody", f"The request's body cannot be read: {error}.") from error
        if length is not None and total < length:
            raise Refusal(400, "IncompleteBody", f"The request's body ended after {total} of {length} bytes.")
        return b"".join(chunks)

    def _tell(self, refusal: Refusal) -> None:
        if refusal.code not in self._told:
            self._told.add(refusal.code)
            log.info(f"refused a request, {refusal.code}: {refusal.message} The next ones are refused without a word.")


_SERVICE = "local_aws.service"
"""Key of a WSGI environment for the service that the signature names."""
CLAIM = "local_aws.claim"
"""Key of a WSGI environment for the signature, once it is verified."""


class _HeldBytes:
    """Counts the bytes of all bodies that are held, and refuses more than its bound."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def released(self) -> "Iterator[_Share]":
        share = _Share(self)
        try:
            yield share
        finally:
            self.change(-share.held)

    def change(self, by: int) -> None:
        with self._lock:
            if by > 0 and self._held + by > self._most:
                raise Refusal(
                    503, "SlowDown", "The local account holds as many bytes of requests as it may. Try again."
                )
            self._held += by


class _Share:
    """The bytes of one request."""

    def __init__(self, all_held: _HeldBytes) -> None:
        self._all = all_held
        self.held = 0

    def add(self, count: int) -> None:
        self._all.change(count)
        self.held += count


def _check_origin(environ: Mapping[str, Any]) -> None:
    if "HTTP_ORIGIN" in environ or environ.get("HTTP_SEC_FETCH_SITE", "none").lower() != "none":
        said = str(environ.get("HTTP_ORIGIN", environ.get("HTTP_SEC_FETCH_SITE")))[:100]
        raise Refusal(403, "AccessDenied", f"This local account answers no web page (it said it is {said!r}).")
    if not _HOST.fullmatch(host := environ.get("HTTP_HOST", "")):
        text = f"This local account is localhost, 127.0.0.1 or [::1], and not {str(host)[:100]!r}."
        raise Refusal(403, "AccessDenied", text)
    if environ.get("PATH_INFO", "").startswith("/moto-api"):
        raise Refusal(403, "AccessDenied", "moto's own API is closed: it resets and rewrites what the account keeps.")


def _call(environ: Mapping[str, Any]) -> Call:
    target = environ.get("RAW_URI") or environ.get("PATH_INFO", "")
    if not target.startswith("/"):
        raise Refusal(400, "InvalidURI", "A request names a path, which begins with a slash.")
    # Underscores of S3's metadata: moto's handler remembers how a name was written.
    written: Mapping[str, str] = environ.get(PRESERVED_HEADER_NAMES_ENVIRON_KEY, {})
    headers = {
        written.get(key, key.removeprefix("HTTP_").replace("_", "-")).lower(): str(value)
        for key, value in environ.items()
        if key.startswith("HTTP_") or (key in ("CONTENT_TYPE", "CONTENT_LENGTH") and value)
    }
    return Call(method=environ["REQUEST_METHOD"], target=target, headers=headers)


def _content_length(environ: Mapping[str, Any]) -> int | None:
    """Returns the body's length, None for a chunked one. Raises `Refusal`."""
    length, coding = environ.get("CONTENT_LENGTH") or "", environ.get("HTTP_TRANSFER_ENCODING")
    if coding is not None and (length or coding.strip().lower() != "chunked"):
        text = "Transfer-Encoding is 'chunked', or is not sent; it is not sent beside a Content-Length."
        raise Refusal(400, "InvalidRequest", text)
    if coding is not None:
        return None
    if length and not _LENGTH.fullmatch(length):
        raise Refusal(400, "InvalidRequest", f"Content-Length is {length[:40]!r}, which is no length.")
    return int(length or 0)


def _next(total: int, length: int | None, limit: int) -> int:
    """Returns how many bytes to read now: at most one more than the bound where the length is not known."""
    return min(CHUNK_BYTES, (limit + 1 if length is None else length) - total)


def _too_long(limit: int) -> Refusal:
    return Refusal(413, "EntityTooLarge", f"HTTP content length exceeded {limit} bytes.")


def answer(refusal: Refusal, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answers in the form that clients of the service read: XML for S3 and for forms, else JSON."""
    form = environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded")
    if form or environ.get(_SERVICE) in _XML_SERVICES:
        fields = f"<Code>{refusal.code}</Code><Message>{escape(refusal.message)}</Message>"
        body, kind = f"<ErrorResponse><Error>{fields}</Error></ErrorResponse>", "text/xml"
    else:
        body, kind = json.dumps({"__type": refusal.code, "message": refusal.message}), "application/json"
    data = body.encode()
    headers = [("Content-Type", kind), ("Content-Length", str(len(data))), ("x-amzn-errortype", refusal.code)]
    start_response(f"{refusal.status} {http.HTTPStatus(refusal.status).phrase}", headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [data]
