"""Reads and verifies the AWS Signature Version 4 of a request, in the Authorization header or in a presigned URL.

The algorithm is botocore's own signer, run again over what arrived. Signatures of an upload's single chunks are not
verified, only that of the request that carries them. Source:
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Self
from urllib.parse import parse_qsl

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials

MAX_SKEW_S = 900
MAX_EXPIRES_S = 604_800
S3_SERVICES = frozenset({"s3", "s3express", "s3-outposts", "s3-object-lambda"})
"""Names in signatures whose paths are signed as they are sent, neither normalised nor encoded twice."""
HOW_TO_SIGN = (
    "This local account is for its owner only: run the exports that `python -m local_aws` printed when it started, "
    "so that requests are signed with its key."
)

_ALGORITHM = "AWS4-HMAC-SHA256"
_CREDENTIAL = r"(?P<key>[^/,\s]+)/(?P<date>\d{8})/(?P<region>[a-z0-9-]+)/(?P<service>[a-z0-9-]+)/aws4_request"
_AUTHORIZATION = re.compile(
    rf"{_ALGORITHM}\s+Credential={_CREDENTIAL},\s*SignedHeaders=(?P<signed>[^,\s]+),\s*Signature=(?P<signature>[0-9a-f]{{64}})"
)
_SHA256 = "x-amz-content-sha256"
_UNSIGNED = "UNSIGNED-PAYLOAD"
_STREAMED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
_NOT_HASHED = (_UNSIGNED, _STREAMED, f"{_STREAMED}-TRAILER", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
"""Values in place of the hash of a request's body."""
_UNREADABLE = "IncompleteSignature"


class RequestRefused(Exception):
    """A request that the account rejects. `code` is the service's name of the error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True, kw_only=True)
class ReceivedRequest:
    """A request as it came over the wire."""

    method: str
    target: str
    headers: Mapping[str, str]

    @cached_property
    def query(self) -> dict[str, str]:
        """The decoded parameters of the query."""
        return dict(parse_qsl(self.target.partition("?")[2], keep_blank_values=True, errors="replace"))

    @property
    def unsigned_url(self) -> str:
        """The URL without its signature."""
        path, _, query = self.target.partition("?")
        kept = "&".join(pair for pair in query.split("&") if pair.partition("=")[0] != "X-Amz-Signature")
        return f"http://{self.headers.get('host', '')}{path}" + (f"?{kept}" if kept else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestSignature:
    """A signature as it came. `expires_s` is None outside a presigned URL."""

    access_key: str
    token: str | None
    signature: str
    timestamp: str
    region: str
    service: str
    signed_headers: tuple[str, ...]
    expires_s: int | None

    @classmethod
    def read(cls, request: ReceivedRequest) -> Self:
        """Raises `RequestRefused` for no signature, for two, and for one of another form."""
        in_header, in_url = "authorization" in request.headers, "X-Amz-Algorithm" in request.query
        if "AWSAccessKeyId" in request.query:
            text = "Signature Version 2 is not supported: presign with signature_version='s3v4'."
            raise RequestRefused(400, "InvalidRequest", text)
        if in_header and in_url:
            text = "A request is signed either in its Authorization header or in its URL."
            raise RequestRefused(400, "InvalidArgument", text)
        if in_header:
            return cls._in_header(request.headers)
        if in_url:
            return cls._in_url(request.query)
        raise RequestRefused(403, "MissingAuthenticationToken", HOW_TO_SIGN)

    @classmethod
    def _in_header(cls, headers: Mapping[str, str]) -> Self:
        match = _AUTHORIZATION.fullmatch(headers["authorization"].strip())
        if match is None:
            text = f"The Authorization header holds no signature of {_ALGORITHM}. {HOW_TO_SIGN}"
            raise RequestRefused(400, _UNREADABLE, text)
        found = {
            "Date": headers.get("x-amz-date", ""),
            "SignedHeaders": match["signed"],
            "Signature": match["signature"],
        }
        return cls._of(match, found, headers.get("x-amz-security-token"), None)

    @classmethod
    def _in_url(cls, query: Mapping[str, str]) -> Self:
        match = re.fullmatch(_CREDENTIAL, query.get("X-Amz-Credential", ""))
        expires = query.get("X-Amz-Expires", "")
        if query["X-Amz-Algorithm"] != _ALGORITHM or match is None or not re.fullmatch("[0-9]{1,6}", expires):
            text = "The URL holds no signature that can be read."
            raise RequestRefused(400, "AuthorizationQueryParametersError", text)
        found = {name: query.get(f"X-Amz-{name}", "") for name in ("Date", "SignedHeaders", "Signature")}
        return cls._of(match, found, query.get("X-Amz-Security-Token"), int(expires))

    @classmethod
    def _of(cls, scope: re.Match[str], found: Mapping[str, str], token: str | None, expires_s: int | None) -> Self:
        timestamp = found["Date"]
        if not re.fullmatch(r"[0-9]{8}T[0-9]{6}Z", timestamp) or not timestamp.startswith(scope["date"]):
            text = "X-Amz-Date is missing, or is not of the day that the credential names."
            raise RequestRefused(400, _UNREADABLE, text)
        return cls(
            access_key=scope["key"],
            token=token,
            signature=found["Signature"],
            timestamp=timestamp,
            region=scope["region"],
            service=scope["service"],
            signed_headers=tuple(sorted(found["SignedHeaders"].split(";"))),
            expires_s=expires_s,
        )

    def check(self, received: ReceivedRequest, secret: str, body_sha256: str, now: float) -> None:
        """Raises `RequestRefused` unless the owner of `secret` signed this very request, and not too long ago."""
        self._check_age(now)
        if "host" not in self.signed_headers or not all(name in received.headers for name in self.signed_headers):
            text = "SignedHeaders has to name the host, and headers that were sent."
            raise RequestRefused(400, _UNREADABLE, text)
        unsigned = {name for name in received.headers if name.startswith("x-amz-")} - {*self.signed_headers, _SHA256}
        if unsigned:
            text = f"There were headers present in the request which were not signed: {', '.join(sorted(unsigned))}"
            raise RequestRefused(403, "AccessDenied", text)
        request = AWSRequest(received.method, received.unsigned_url)
        request.context["timestamp"] = self.timestamp
        for name, value in received.headers.items():
            if name != _SHA256:
                request.headers[name] = value
        request.headers[_SHA256] = self._payload(received, body_sha256)
        signer = _Signer(self, secret)
        expected = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
        if not hmac.compare_digest(expected.encode(), self.signature.encode()):
            text = "The request was not signed with the secret key of this local account, or was changed."
            raise RequestRefused(403, "SignatureDoesNotMatch", f"{text} {HOW_TO_SIGN}")

    def _check_age(self, now: float) -> None:
        try:
            age = now - datetime.strptime(self.timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        except ValueError as error:
            raise RequestRefused(400, _UNREADABLE, f"X-Amz-Date is {self.timestamp}, which is no moment.") from error
        if age < -MAX_SKEW_S or (self.expires_s is None and age > MAX_SKEW_S):
            text = f"The request was signed {abs(age):.0f} s before or after now."
            raise RequestRefused(403, "RequestTimeTooSkewed", text)
        if self.expires_s is not None and age > min(self.expires_s, MAX_EXPIRES_S):
            raise RequestRefused(403, "AccessDenied", "Request has expired")

    def _payload(self, received: ReceivedRequest, body_sha256: str) -> str:
        presigned_s3 = self.expires_s is not None and self.service in S3_SERVICES
        signed = received.headers.get(_SHA256) or received.query.get("X-Amz-Content-Sha256")
        payload = signed or (_UNSIGNED if presigned_s3 else body_sha256)
        if payload not in _NOT_HASHED and not hmac.compare_digest(payload.encode(), body_sha256.encode()):
            text = f"The body's hash is not the one that {_SHA256} names."
            raise RequestRefused(400, "XAmzContentSHA256Mismatch", text)
        return payload


class _Signer(SigV4Auth):
    """botocore's signer, over the headers that the caller signed: it would choose others of its own."""

    def __init__(self, signature: RequestSignature, secret: str) -> None:
        super().__init__(Credentials(signature.access_key, secret), signature.service, signature.region)
        self._signed_headers = signature.signed_headers
        self._path_as_sent = signature.service in S3_SERVICES

    def headers_to_sign(self, request: AWSRequest) -> HTTPHeaders:
        headers = HTTPHeaders()
        for name in self._signed_headers:
            headers[name] = request.headers[name]
        return headers

    def _normalize_url_path(self, path: str) -> str:
        return path if self._path_as_sent else super()._normalize_url_path(path)  # type: ignore[misc]
