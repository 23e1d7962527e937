"""Reduces a verified HTTP request to one reading, and reads its API call.

moto looks for the operation and its parameters in the URL, in a form, in headers and in the body, in an order that
depends on the request. AWS's own clients send one form for each protocol, and everything else is a 400:

- query: a POST to `/` with a form that has each parameter once, and no parameter in the URL;
- json: a POST to `/` with X-Amz-Target and a JSON object, and no parameter in the URL;
- rest-json: a path, parameters in the URL, a JSON object, and no X-Amz-Target;
- an invocation: its path, and no X-Amz-Target;
- S3: a path, parameters in the URL, and a body that is no form.

moto's own routing and parsing then read the call, so that moto executes the call that is checked.
"""

import io
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request, determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.utils import get_service_model
from moto.utilities.constants import JSON_TYPES
from werkzeug.exceptions import NotFound

from local_aws.permissions.actions import ApiCall, UnknownCall, table
from local_aws.signature import S3_SERVICES, RequestRefused, RequestSignature

MAX_BODY_BYTES = 64 << 20
INVOCATION = re.compile(r"/endpoints/(?P<name>[^/]+)/invocations")
_BY_SIGNATURE = {
    "elasticloadbalancing": ("elbv2",),
    "monitoring": ("cloudwatch",),
    "sagemaker": ("sagemaker", "sagemaker-runtime"),
    "servicequotas": ("service-quotas",),
    "states": ("stepfunctions",),
}
_IN_SIGNED_URLS = frozenset(
    f"X-Amz-{name}"
    for name in (
        *("Algorithm", "Content-Sha256", "Credential", "Date", "Expires", "Security-Token", "Signature"),
        "SignedHeaders",
    )
)
_FORM = "application/x-www-form-urlencoded"
_HEADERS = ("HTTP_ACCEPT", "HTTP_AUTHORIZATION", "HTTP_CONTENT_ENCODING", "HTTP_HOST", "HTTP_X_AMZ")
"""Beginnings of headers that a service reads; moto takes parameters, the account and the region from others."""
_NOT_FOR_S3 = ("HTTP_ACTION", "HTTP_USER_AGENT", "HTTP_X_AMZ_TARGET", "HTTP_X_MOTO_ACCOUNT_ID")


def services_of(signed_for: str) -> tuple[str, ...]:
    """Returns botocore's names of a service whose permissions are known, by its name in signatures."""
    return _BY_SIGNATURE.get(signed_for) or ((signed_for,) if signed_for in table() else ())


def settle(environ: dict[str, Any], signature: RequestSignature) -> None:
    """Reduces a verified request to the one form that its service reads. Raises `RequestRefused`."""
    service = signature.service
    # moto finds the service, the region and the caller's key by this header. For a presigned URL it would guess.
    scope = f"{signature.access_key}/{signature.timestamp[:8]}/{signature.region}/{service}/aws4_request"
    environ["HTTP_AUTHORIZATION"] = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature="
    if service in S3_SERVICES:
        _drop(environ, *_NOT_FOR_S3)
        if _media_type(environ) in (_FORM, "multipart/form-data"):
            raise _refused("S3 takes no form here. Send another Content-Type.")
    elif service == "sagemaker" and INVOCATION.fullmatch(environ["PATH_INFO"]):
        _drop(environ, "HTTP_X_AMZ_TARGET")
    elif names := services_of(service):
        _drop(environ, *[name for name in environ if name.startswith("HTTP_") and not name.startswith(_HEADERS)])
        _settle_call(environ, service, names[0])


def read_call(environ: Mapping[str, Any], signed_for: str) -> ApiCall:
    """Reads a call, but no upload's body. The body can be read again. Raises `UnknownCall`."""
    body: io.BytesIO = environ["wsgi.input"]
    request = Request({**environ, "wsgi.input": body})
    try:
        for service in services_of(signed_for):
            if call := _read(request, service, body):
                return call
    finally:
        body.seek(0)
    path = environ.get("PATH_INFO", "")
    raise UnknownCall(f"{environ['REQUEST_METHOD']} {path} of the service {signed_for}")


def _read(request: Request, service: str, body: io.BytesIO) -> ApiCall | None:
    try:
        operation, in_path = get_service_router(service).match(request)
        protocol = determine_request_protocol(get_service_model(service), request.content_type)
    except (NotFound, NotImplementedError):
        return None
    parameters = PROTOCOL_PARSERS[protocol](operation).parse(
        {
            "method": request.method,
            "values": request.values,
            "headers": request.headers,
            "body": b"" if operation.has_streaming_input else body.getvalue(),
            "url_path": request.path,
            "url_params": in_path,
        }
    )
    return ApiCall(service, operation.name, parameters)


def _settle_call(environ: dict[str, Any], service: str, model: str) -> None:
    metadata: Any = get_service_model(model).metadata
    protocols = set(metadata["protocols"]) - {"smithy-rpc-v2-cbor"}
    in_url = [name for name, _ in parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)]
    body = _body(environ)
    if "rest-json" in protocols or (service == "sagemaker" and environ["PATH_INFO"] != "/"):
        _drop(environ, "HTTP_X_AMZ_TARGET")
        if "Action" in in_url:
            raise _refused("Action is no parameter of this URL.")
        has_body = environ["REQUEST_METHOD"] in ("PATCH", "POST", "PUT")
        _replace_body(environ, _as_json(body if has_body else b""), "application/json")
        return
    if environ["PATH_INFO"] != "/" or environ["REQUEST_METHOD"] != "POST":
        raise _refused(f"{service} is called by a POST to the path /.")
    if more := set(in_url) - _IN_SIGNED_URLS:
        raise _refused(f"{service} takes no parameters in the URL, and this one has {', '.join(sorted(more))}.")
    media_type = _media_type(environ) or ("application/x-amz-json-1.1" if "json" in protocols else "")
    if media_type in JSON_TYPES and "json" in protocols:
        _replace_body(environ, _as_json(body), media_type)
    elif media_type == _FORM and protocols & {"query", "ec2"}:
        names = [name for name, _ in parse_qsl(body.decode(), keep_blank_values=True)]
        if len(names) != len(set(names)):
            raise _refused("The form has a parameter twice.")
        _drop(environ, "HTTP_X_AMZ_TARGET")
        _replace_body(environ, body, _FORM)
    else:
        raise _refused(f"{service} takes {' or '.join(sorted(protocols))}, and not {media_type!r}.")


def _media_type(environ: Mapping[str, Any]) -> str:
    return str(environ.get("CONTENT_TYPE", "")).partition(";")[0].strip().lower()


def _body(environ: dict[str, Any]) -> bytes:
    body: bytes = environ["wsgi.input"].getvalue()
    if environ.pop("HTTP_CONTENT_ENCODING", "").lower() != "gzip":
        return body
    try:
        unpacked = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise _refused(f"The body is not gzip: {error}.") from error
    if len(unpacked) > MAX_BODY_BYTES:
        raise RequestRefused(413, "EntityTooLarge", f"The unpacked body exceeds {MAX_BODY_BYTES} bytes.")
    return unpacked


def _as_json(body: bytes) -> bytes:
    """Returns the body's object in JSON that cannot be read as a form. Raises `ValueError` for no JSON."""
    content = json.loads(body or b"{}")
    if not isinstance(content, dict):
        raise _refused("The body is no object in JSON.")
    # Both characters occur only in strings.
    return json.dumps(content).replace("&", "\\u0026").replace("=", "\\u003d").encode()


def _replace_body(environ: dict[str, Any], body: bytes, content_type: str) -> None:
    environ["wsgi.input"] = io.BytesIO(body)
    environ["CONTENT_LENGTH"] = str(len(body))
    environ["CONTENT_TYPE"] = content_type


def _drop(environ: dict[str, Any], *names: str) -> None:
    for name in names:
        environ.pop(name, None)


def _refused(message: str) -> RequestRefused:
    return RequestRefused(400, "InvalidRequest", message)
