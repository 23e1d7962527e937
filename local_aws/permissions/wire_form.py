"""Leaves one way to read a request, so that the call whose permissions are checked is the call that moto executes.

moto looks for the operation and its parameters in the URL, in a form, in headers and in the body, in an order that
depends on the request. AWS's own clients send one form for each protocol:

- query: a POST to `/` with a form that has each parameter once, and no parameter in the URL;
- json: a POST to `/` with X-Amz-Target and an object in JSON, and no parameter in the URL;
- rest-json: a path, parameters in the URL, an object in JSON, and no X-Amz-Target;
- an invocation: its path, and no X-Amz-Target;
- S3: a path, parameters in the URL, and a body that is no form.

Everything else is a 400. A JSON body is written anew, because moto also tries to read it as a form.
"""

import io
import json
import re
import zlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from moto.core.utils import get_service_model
from moto.utilities.constants import JSON_TYPES

from local_aws.permissions.api_call import SERVICES
from local_aws.signature import S3_SERVICES, Claim, Refusal, Version4

MAX_BODY_BYTES = 64 << 20
"""Bound of a body after decompression."""
INVOCATION = re.compile(r"/endpoints/(?P<name>[^/]+)/invocations")
_OF_SIGNATURE = frozenset(
    {
        "X-Amz-Algorithm",
        "X-Amz-Content-Sha256",
        "X-Amz-Credential",
        "X-Amz-Date",
        "X-Amz-Expires",
        "X-Amz-Security-Token",
        "X-Amz-Signature",
        "X-Amz-SignedHeaders",
    }
)
_FORM = "application/x-www-form-urlencoded"
_HEADERS = ("HTTP_ACCEPT", "HTTP_AUTHORIZATION", "HTTP_CONTENT_ENCODING", "HTTP_HOST", "HTTP_X_AMZ")
"""How the headers that a service reads begin; moto takes parameters, the account and the region from others."""
_NOT_FOR_S3 = ("HTTP_ACTION", "HTTP_USER_AGENT", "HTTP_X_AMZ_TARGET", "HTTP_X_MOTO_ACCOUNT_ID")


def settle(environ: dict[str, Any], claim: Claim, region: str) -> None:
    """Reduces a verified request to the one form that its service reads. Raises `Refusal`.

    Services whose permissions the account does not know are the owner's alone; their requests stay as they are.
    """
    environ["HTTP_AUTHORIZATION"] = _authorization(claim, region)
    if claim.service in S3_SERVICES:
        _drop(environ, [name for name in _NOT_FOR_S3 if name in environ])
        if _media_type(environ) in (_FORM, "multipart/form-data"):
            raise _refusal("S3 takes no form here. Send another Content-Type.")
    elif claim.service == "sagemaker" and INVOCATION.fullmatch(environ["PATH_INFO"]):
        _drop(environ, ["HTTP_X_AMZ_TARGET"])
    elif claim.service in SERVICES:
        _drop(environ, [name for name in environ if name.startswith("HTTP_") and not name.startswith(_HEADERS)])
        _settle_call(environ, claim.service)


def _settle_call(environ: dict[str, Any], service: str) -> None:
    protocols = _protocols(SERVICES[service][0])
    body = _body(environ)
    if "rest-json" in protocols or (service == "sagemaker" and environ["PATH_INFO"] != "/"):
        _drop(environ, ["HTTP_X_AMZ_TARGET"])
        if "Action" in _url_parameters(environ):
            raise _refusal("Action is no parameter of this URL.")
        has_body = environ["REQUEST_METHOD"] in ("PATCH", "POST", "PUT")
        _replace(environ, _as_json(body if has_body else b""), "application/json")
        return
    if environ["PATH_INFO"] != "/" or environ["REQUEST_METHOD"] != "POST":
        raise _refusal(f"{service} is called by a POST to the path /.")
    if more := set(_url_parameters(environ)) - _OF_SIGNATURE:
        raise _refusal(f"{service} takes no parameters in the URL, and this one has {', '.join(sorted(more))}.")
    media_type = _media_type(environ) or ("application/x-amz-json-1.1" if "json" in protocols else "")
    if media_type in JSON_TYPES and "json" in protocols:
        _replace(environ, _as_json(body), media_type)
    elif media_type == _FORM and protocols & {"query", "ec2"}:
        names = [name for name, _ in parse_qsl(body.decode(), keep_blank_values=True)]
        if len(names) != len(set(names)):
            raise _refusal("The form has a parameter twice.")
        _drop(environ, ["HTTP_X_AMZ_TARGET"])
        _replace(environ, body, _FORM)
    else:
        raise _refusal(f"{service} takes {' or '.join(sorted(protocols))}, and not {media_type!r}.")


def _authorization(claim: Claim, region: str) -> str:
    """Returns the verified scope as a header, by which moto finds the service, the region and the caller's key.

    For a presigned URL, moto would guess the service.
    """
    date, scope = ("00000000", region) if not isinstance(claim, Version4) else (claim.timestamp[:8], claim.region)
    credential = f"{claim.access_key}/{date}/{scope}/{claim.service}/aws4_request"
    return f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature="


def _protocols(service: str) -> set[str]:
    metadata: Any = get_service_model(service).metadata
    return set(metadata["protocols"]) - {"smithy-rpc-v2-cbor"}


def _url_parameters(environ: Mapping[str, Any]) -> list[str]:
    return [name for name, _ in parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)]


def _media_type(environ: Mapping[str, Any]) -> str:
    return str(environ.get("CONTENT_TYPE", "")).partition(";")[0].strip().lower()


def _body(environ: dict[str, Any]) -> bytes:
    body: bytes = environ["wsgi.input"].getvalue()
    if environ.pop("HTTP_CONTENT_ENCODING", "").lower() != "gzip":
        return body
    try:
        unpacked = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise _refusal(f"The body is not gzip: {error}.") from error
    if len(unpacked) > MAX_BODY_BYTES:
        text = f"The unpacked body exceeds {MAX_BODY_BYTES} bytes."
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "EntityTooLarge", text)
    return unpacked


def _as_json(body: bytes) -> bytes:
    """Returns the body's object in JSON that is no form. Raises `ValueError` where it is no JSON."""
    parsed = json.loads(body or b"{}")
    if not isinstance(parsed, dict):
        raise _refusal("The body is no object in JSON.")
    # Both characters occur in strings alone.
    return json.dumps(parsed).replace("&", "\\u0026").replace("=", "\\u003d").encode()


def _replace(environ: dict[str, Any], body: bytes, content_type: str) -> None:
    environ["wsgi.input"] = io.BytesIO(body)
    environ["CONTENT_LENGTH"] = str(len(body))
    environ["CONTENT_TYPE"] = content_type


def _drop(environ: dict[str, Any], names: list[str]) -> None:
    for name in names:
        environ.pop(name, None)


def _refusal(message: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, "InvalidRequest", message)
