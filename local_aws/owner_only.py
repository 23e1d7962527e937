"""The outermost WSGI layer: it answers the account's owner only, and passes on whole, bounded, verified requests.

It rejects web pages (an Origin, a page's Sec-Fetch-Site), a Host that is not this machine's loopback, moto's own API,
and every request without a signature of a key: the owner's, a role's session from STS, or a user's from IAM. It reads a
body only for a known key. It logs only the first rejection of each kind, so that a caller cannot fill the log.
"""

import contextlib
import hashlib
import hmac
import http
import io
import json
import logging
import re
import secrets
import string
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

from moto.core.request import PRESERVED_HEADER_NAMES_ENVIRON_KEY
from moto.core.utils import utcnow
from moto.iam.models import iam_backends
from moto.sts.models import AssumedRole, sts_backends

from local_aws.signature import HOW_TO_SIGN, S3_SERVICES, ReceivedRequest, RequestRefused, RequestSignature

_ALPHABET = string.ascii_uppercase + string.digits
# moto tells accounts apart by keys of exactly 20 of these characters. LOCAL shows that it is no key of AWS.


@dataclass(frozen=True, slots=True)
class AccountKeys:
    access_key_id: str = field(default_factory=lambda: "LOCAL" + "".join(secrets.choice(_ALPHABET) for _ in range(15)))
    secret_access_key: str = field(default_factory=lambda: secrets.token_urlsafe(30), repr=False)

    def secret_of(self, access_key_id: str, token: str | None) -> str | None:
        """Returns the secret of a key that may call the account, or None. `token` is a session's."""
        if hmac.compare_digest(access_key_id.encode(), self.access_key_id.encode()):
            return self.secret_access_key
        session = session_of(access_key_id, token or "")
        if session:
            return str(session.secret_access_key)
        for backend in _backends(iam_backends):
            key = backend.access_keys.get(access_key_id)
            # A key without a user is a session's, which needs its token.
            if key and key.user_name and key.status == "Active":
                return str(key.secret_access_key)
        return None


def session_of(access_key_id: str, token: str) -> AssumedRole | None:
    """Returns the role's session to which a key belongs, or None for other keys and expired sessions."""
    for backend in _backends(sts_backends):
        role: AssumedRole | None = backend.get_assumed_role_from_access_key(access_key_id)
        if role and role.expiration > utcnow() and hmac.compare_digest(role.session_token.encode(), token.encode()):
            return role
    return None


def _backends(by_account: Any) -> list[Any]:
    return [backend for account in list(by_account.values()) for backend in list(account.values())]


MAX_BODY_BYTES = 1 << 30
MAX_HELD_BYTES = 2 << 30
CHUNK_BYTES = 1 << 20
SIGNATURE = "local_aws.signature"
_SERVICE = "local_aws.service"

WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
BodyLimit = Callable[[str], int | None]
"""Returns the limit of a body by its path, if less than `MAX_BODY_BYTES`."""

_HOST = re.compile(r"(?:(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?\.)?localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?", re.I)
_LENGTH = re.compile(r"[0-9]{1,15}")
_XML_SERVICES = S3_SERVICES | {"cloudfront", "route53"}

log = logging.getLogger(__name__)


class OwnerOnly:
    """Answers rejections itself, and passes every other request to `application`."""

    def __init__(
        self,
        application: WsgiApplication,
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
        self._logged: set[str] = set()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self._held.share() as hold:
            try:
                self._admit(environ, hold)
            except RequestRefused as refused:
                if refused.code not in self._logged:
                    self._logged.add(refused.code)
                    log.info(f"rejected a request, {refused.code}: {refused.message} Further ones are not logged.")
                return answer(refused, environ, start_response)
            return list(self._application(environ, start_response))

    def _admit(self, environ: dict[str, Any], hold: Callable[[int], None]) -> None:
        """Verifies the request and replaces its body by one that is whole. Raises `RequestRefused`."""
        _check_origin(environ)
        request = _received(environ)
        signature = RequestSignature.read(request)
        environ[_SERVICE] = signature.service
        secret = self._keys.secret_of(signature.access_key, signature.token)
        if secret is None:
            code = "InvalidAccessKeyId" if signature.service in S3_SERVICES else "InvalidClientTokenId"
            raise RequestRefused(403, code, f"This local account does not have this access key. {HOW_TO_SIGN}")
        body = self._read(environ, hold)
        signature.check(request, secret, hashlib.sha256(body).hexdigest(), self._clock())
        environ[SIGNATURE] = signature
        environ["wsgi.input"] = io.BytesIO(body)
        environ["wsgi.input_terminated"] = True
        if environ.pop("HTTP_TRANSFER_ENCODING", None) is not None:
            environ["CONTENT_LENGTH"] = str(len(body))

    def _read(self, environ: Mapping[str, Any], hold: Callable[[int], None]) -> bytes:
        limit = min(self._body_limit(environ.get("PATH_INFO", "")) or self._max_body_bytes, self._max_body_bytes)
        too_long = RequestRefused(413, "EntityTooLarge", f"HTTP content length exceeded {limit} bytes.")
        length = _content_length(environ)
        if length is not None and length > limit:
            raise too_long
        end = limit + 1 if length is None else length
        chunks, total, stream = list[bytes](), 0, environ["wsgi.input"]
        try:
            while total < end and (chunk := stream.read(min(CHUNK_BYTES, end - total))):
                total += len(chunk)
                if total > limit:
                    raise too_long
                hold(len(chunk))
                chunks.append(chunk)
        except TimeoutError as error:
            raise RequestRefused(408, "RequestTimeout", "The request's body did not arrive in time.") from error
        except (OSError, ValueError) as error:
            raise RequestRefused(400, "IncompleteBody", f"The request's body cannot be read: {error}.") from error
        if length is not None and total < length:
            text = f"The request's body ended after {total} of {length} bytes."
            raise RequestRefused(400, "IncompleteBody", text)
        return b"".join(chunks)


class _HeldBytes:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """Yields a function that counts bytes until the block ends."""
        own = 0

        def hold(count: int) -> None:
            nonlocal own
            with self._lock:
                if self._held + count > self._limit:
                    text = "The local account holds as many bytes of requests as it may. Try again."
                    raise RequestRefused(503, "SlowDown", text)
                self._held += count
                own += count

        try:
            yield hold
        finally:
            with self._lock:
                self._held -= own


def _check_origin(environ: Mapping[str, Any]) -> None:
    if "HTTP_ORIGIN" in environ or environ.get("HTTP_SEC_FETCH_SITE", "none").lower() != "none":
        origin = str(environ.get("HTTP_ORIGIN", environ.get("HTTP_SEC_FETCH_SITE")))[:100]
        raise RequestRefused(403, "AccessDenied", f"This local account answers no web page (origin {origin!r}).")
    if not _HOST.fullmatch(host := environ.get("HTTP_HOST", "")):
        text = f"This local account is localhost, 127.0.0.1 or [::1], and not {str(host)[:100]!r}."
        raise RequestRefused(403, "AccessDenied", text)
    if environ.get("PATH_INFO", "").startswith("/moto-api"):
        text = "moto's own API is closed, because it resets and rewrites the account."
        raise RequestRefused(403, "AccessDenied", text)


def _received(environ: Mapping[str, Any]) -> ReceivedRequest:
    target = environ.get("RAW_URI") or environ.get("PATH_INFO", "")
    if not target.startswith("/"):
        raise RequestRefused(400, "InvalidURI", "A request names a path, which begins with a slash.")
    # moto's handler remembers how a name was written: S3's metadata may have underscores.
    written: Mapping[str, str] = environ.get(PRESERVED_HEADER_NAMES_ENVIRON_KEY, {})
    headers = {
        written.get(key, key.removeprefix("HTTP_").replace("_", "-")).lower(): str(value)
        for key, value in environ.items()
        if key.startswith("HTTP_") or (key in ("CONTENT_TYPE", "CONTENT_LENGTH") and value)
    }
    return ReceivedRequest(method=environ["REQUEST_METHOD"], target=target, headers=headers)


def _content_length(environ: Mapping[str, Any]) -> int | None:
    length, coding = environ.get("CONTENT_LENGTH") or "", environ.get("HTTP_TRANSFER_ENCODING")
    if coding is not None and (length or coding.strip().lower() != "chunked"):
        text = "Transfer-Encoding must be 'chunked' or absent, and cannot be sent with a Content-Length."
        raise RequestRefused(400, "InvalidRequest", text)
    if coding is not None:
        return None
    if length and not _LENGTH.fullmatch(length):
        raise RequestRefused(400, "InvalidRequest", f"Content-Length is {length[:40]!r}, which is no length.")
    return int(length or 0)


def answer(refused: RequestRefused, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answers in the form that clients of the service read: XML for S3 and for forms, else JSON."""
    form = environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded")
    if form or environ.get(_SERVICE) in _XML_SERVICES:
        fields = f"<Code>{refused.code}</Code><Message>{escape(refused.message)}</Message>"
        body, kind = f"<ErrorResponse><Error>{fields}</Error></ErrorResponse>", "text/xml"
    else:
        body, kind = json.dumps({"__type": refused.code, "message": refused.message}), "application/json"
    data = body.encode()
    headers = [("Content-Type", kind), ("Content-Length", str(len(data))), ("x-amzn-errortype", refused.code)]
    start_response(f"{refused.status} {http.HTTPStatus(refused.status).phrase}", headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [data]
