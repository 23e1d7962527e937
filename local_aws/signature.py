"""Reads and verifies the AWS signature of a request: who signed it, and whether it arrived as it was signed.

Version 4 in the Authorization header or in a presigned URL, and Version 2 in a presigned URL of S3, which is what boto3
makes where no version is configured. The algorithms are botocore's own, run again over what arrived. Source:
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html

This module knows neither WSGI nor which keys exist. The signatures of an upload's single chunks
(STREAMING-AWS4-HMAC-SHA256-PAYLOAD) are not verified, only that of the request that carries them.
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from botocore.auth import HmacV1Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials

MAX_SKEW_S = 900
"""How far the clock of who signed a request may be off, as with S3."""
MAX_EXPIRES_S = 604_800
"""How long a presigned URL of Version 4 may hold."""

_ALGORITHM = "AWS4-HMAC-SHA256"
_CREDENTIAL = r"(?P<key>[^/,\s]+)/(?P<date>\d{8})/(?P<region>[a-z0-9-]+)/(?P<service>[a-z0-9-]+)/aws4_request"
_AUTHORIZATION = re.compile(
    rf"{_ALGORITHM}\s+Credential={_CREDENTIAL},\s*SignedHeaders=(?P<signed>[^,\s]+),\s*Signature=(?P<signature>[0-9a-f]{{64}})"
)
_SHA256 = "x-amz-content-sha256"
_UNSIGNED = "UNSIGNED-PAYLOAD"
_NOT_HASHED = frozenset(
    {
        _UNSIGNED,
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
    }
)
"""The words that may stand in place of the hash of a request's body."""
S3_SERVICES = frozenset({"s3", "s3express", "s3-outposts", "s3-object-lambda"})
"""Names in signatures whose paths are signed as they are sent, neither normalised nor encoded twice."""

UNREADABLE = "IncompleteSignature"
HOW_TO_SIGN = (
    "This local account is for its owner alone: run the exports that `python -m local_aws` printed when it started, "
    "so that requests are signed with its key."
)


class Refusal(Exception):
    """A request that the account does not answer. `code` is the service's name of the error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request as it came over the wire."""

    method: str
    target: str
    """Path and query, as they were sent."""
    headers: Mapping[str, str]
    """By name in lower case."""

    @property
    def host(self) -> str:
        return self.headers.get("host", "")

    @cached_property
    def query(self) -> dict[str, str]:
        """The decoded parameters of the query."""
        return dict(parse_qsl(self.target.partition("?")[2], keep_blank_values=True, errors="replace"))

    def without(self, *parameters: str) -> str:
        """Returns the URL without some parameters of its query, and all else as it was sent."""
        path, _, query = self.target.partition("?")
        kept = "&".join(pair for pair in query.split("&") if pair.partition("=")[0] not in parameters)
        return f"http://{self.host}{path}" + (f"?{kept}" if kept else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Version4:
    """A signature of Version 4, as it came. `expires_s` is None where it is no presigned URL."""

    access_key: str
    token: str | None
    signature: str
    timestamp: str
    region: str
    service: str
    signed_headers: tuple[str, ...]
    expires_s: int | None

    @classmethod
    def in_header(cls, call: Call) -> Self:
        match = _AUTHORIZATION.fullmatch(call.headers["authorization"].strip())
        if match is None:
            raise Refusal(
                400, UNREADABLE, f"The Authorization header holds no signature of {_ALGORITHM}. {HOW_TO_SIGN}"
            )
        token = call.headers.get("x-amz-security-token")
        return cls._of(match, match["signed"], match["signature"], call.headers.get("x-amz-date", ""), token, None)

    @classmethod
    def in_query(cls, call: Call) -> Self:
        query = call.query
        match = re.fullmatch(_CREDENTIAL, query.get("X-Amz-Credential", ""))
        expires = query.get("X-Amz-Expires", "")
        if query["X-Amz-Algorithm"] != _ALGORITHM or match is None or not re.fullmatch("[0-9]{1,6}", expires):
            raise Refusal(400, "AuthorizationQueryParametersError", "The URL holds no signature that can be read.")
        signed, signature = query.get("X-Amz-SignedHeaders", ""), query.get("X-Amz-Signature", "")
        token = query.get("X-Amz-Security-Token")
        return cls._of(match, signed, signature, query.get("X-Amz-Date", ""), token, int(expires))

    @classmethod
    def _of(
        cls, scope: re.Match[str], signed: str, signature: str, timestamp: str, token: str | None, expires_s: int | None
    ) -> Self:
        if not re.fullmatch(r"[0-9]{8}T[0-9]{6}Z", timestamp) or not timestamp.startswith(scope["date"]):
            raise Refusal(400, UNREADABLE, "X-Amz-Date is missing, or is not of the day that the credential names.")
        return cls(
            access_key=scope["key"],
            token=token,
            signature=signature,
            timestamp=timestamp,
            region=scope["region"],
            service=scope["service"],
            signed_headers=tuple(sorted(signed.split(";"))),
            expires_s=expires_s,
        )

    def check(self, call: Call, secret: str, body_sha256: str, now: float) -> None:
        """Raises `Refusal` unless the owner of `secret` signed this very request, and not too long ago."""
        self._check_age(now)
        if "host" not in self.signed_headers or not all(name in call.headers for name in self.signed_headers):
            raise Refusal(400, UNREADABLE, "SignedHeaders has to name the host, and headers that were sent.")
        unsigned = {name for name in call.headers if name.startswith("x-amz-")} - {*self.signed_headers, _SHA256}
        if unsigned:
            text = f"There were headers present in the request which were not signed: {', '.join(sorted(unsigned))}"
            raise Refusal(403, "AccessDenied", text)
        request = AWSRequest(call.method, call.without("X-Amz-Signature"))
        request.context["timestamp"] = self.timestamp
        for name, value in call.headers.items():
            if name != _SHA256:
                request.headers[name] = value
        request.headers[_SHA256] = self._payload(call, body_sha256)
        signer = _Signer(self, secret)
        expected = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
        _compare(expected, self.signature)

    def _check_age(self, now: float) -> None:
        try:
            age = now - datetime.strptime(self.timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        except ValueError as error:
            raise Refusal(400, UNREADABLE, f"X-Amz-Date is {self.timestamp}, which is no moment.") from error
        if age < -MAX_SKEW_S or (self.expires_s is None and age > MAX_SKEW_S):
            raise Refusal(403, "RequestTimeTooSkewed", f"The request was signed {abs(age):.0f} s before or after now.")
        if self.expires_s is not None and age > min(self.expires_s, MAX_EXPIRES_S):
            raise Refusal(403, "AccessDenied", "Request has expired")

    def _payload(self, call: Call, body_sha256: str) -> str:
        """Returns what was signed for the body, which is compared where it is a hash."""
        presigned_s3 = self.expires_s is not None and self.service in S3_SERVICES
        claimed = (
            call.headers.get(_SHA256) or call.query.get("X-Amz-Content-Sha256") or (_UNSIGNED if presigned_s3 else "")
        )
        if claimed and claimed not in _NOT_HASHED and not hmac.compare_digest(claimed.encode(), body_sha256.encode()):
            raise Refusal(400, "XAmzContentSHA256Mismatch", f"The body's hash is not the one that {_SHA256} names.")
        return claimed or body_sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class Version2:
    """The signature of a presigned URL of S3 of Version 2, as it came."""

    access_key: str
    token: str | None
    signature: str
    expires_at: int
    service: str = "s3"

    @classmethod
    def in_query(cls, call: Call) -> Self:
        query = call.query
        if not re.fullmatch("[0-9]{1,12}", expires := query.get("Expires", "")):
            raise Refusal(403, "AccessDenied", "A presigned URL has to say when it expires.")
        return cls(
            access_key=query["AWSAccessKeyId"],
            token=query.get("x-amz-security-token"),
            signature=query.get("Signature", ""),
            expires_at=int(expires),
        )

    def check(self, call: Call, secret: str, body_sha256: str, now: float) -> None:
        """Raises `Refusal` unless the owner of `secret` signed this URL, and it has not expired."""
        if now > self.expires_at:
            raise Refusal(403, "AccessDenied", "Request has expired")
        url = urlsplit(call.without("AWSAccessKeyId", "Signature", "Expires"))
        headers: Any = HTTPHeaders()
        for name, value in {**call.query, **call.headers}.items():
            if name in ("content-md5", "content-type") or name.startswith("x-amz-"):
                headers[name] = value
        # The bucket is part of what is signed, also where it stands in the host's name.
        bucket = call.host.partition(".localhost")[0] if ".localhost" in call.host else ""
        signer = _SignerOfUrls(Credentials(self.access_key, secret, self.token), str(self.expires_at))
        expected = signer.get_signature(
            call.method, url, headers, auth_path=f"/{bucket}{url.path}" if bucket else url.path
        )
        _compare(expected, self.signature)


Claim = Version4 | Version2


def read(call: Call) -> Claim:
    """Reads who claims to have signed a request. Raises `Refusal` for none, for two, and for what it cannot read."""
    forms = {
        "authorization": "authorization" in call.headers,
        "version 4": "X-Amz-Algorithm" in call.query,
        "version 2": "AWSAccessKeyId" in call.query,
    }
    match [form for form, is_there in forms.items() if is_there]:
        case ["authorization"]:
            return Version4.in_header(call)
        case ["version 4"]:
            return Version4.in_query(call)
        case ["version 2"]:
            return Version2.in_query(call)
        case []:
            raise Refusal(403, "MissingAuthenticationToken", HOW_TO_SIGN)
    raise Refusal(400, "InvalidArgument", "A request is signed either in its Authorization header or in its URL.")


class _Signer(SigV4Auth):
    """botocore's signer, over the headers that the caller signed: it would choose others of its own."""

    def __init__(self, claim: Version4, secret: str) -> None:
        super().__init__(Credentials(claim.access_key, secret), claim.service, claim.region)
        self._signed_headers = claim.signed_headers
        self._path_as_it_is = claim.service in S3_SERVICES

    def headers_to_sign(self, request: AWSRequest) -> HTTPHeaders:
        headers = HTTPHeaders()
        for name in self._signed_headers:
            headers[name] = request.headers[name]
        return headers

    def _normalize_url_path(self, path: str) -> str:
        return path if self._path_as_it_is else super()._normalize_url_path(path)  # type: ignore[misc]


class _SignerOfUrls(HmacV1Auth):
    """botocore's signer of Version 2, with a given moment of expiry in the place of the date."""

    def __init__(self, credentials: Credentials, expires_at: str) -> None:
        super().__init__(credentials)
        self._expires_at = expires_at

    def _get_date(self) -> str:
        return self._expires_at


def _compare(expected: str, signature: str) -> None:
    if not hmac.compare_digest(expected.encode(), signature.encode()):
        raise Refusal(
            403,
            "SignatureDoesNotMatch",
            f"The request was not signed with the secret key of this local account, or was changed. {HOW_TO_SIGN}",
        )
