"""Servers that answer KServe v2 requests: any over HTTP, and a SageMaker endpoint with Triton behind it.

`HttpServer` asks Triton itself, an ECS service behind its load balancer, or KServe. `SageMakerEndpoint` signs its
requests and keeps its connections; Triton's SageMaker front end takes the binary form only under a Content-Type of its
own, which carries the header's size. Each attempt is bounded as `Attempt` says, in both.
"""

import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import boto3
import botocore.exceptions as aws
import urllib3
from botocore.config import Config
from urllib3 import exceptions as http

from aws_api.errors import translate_aws_errors
from inference_recommender.client.attempt import CONNECT_TIMEOUT_S, Attempt, bound_connections, bounded
from inference_recommender.client.failures import (
    InferenceFailed,
    NotAnAnswer,
    Refused,
    TimedOut,
    Unreachable,
    retry_after_s,
)
from inference_recommender.client.kserve import Body
from workloads import UsageError

TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 64 << 20
MAX_DIGITS = 15
PART_BYTES = 1 << 20
"""An answer that does not say its size is read in parts of so many bytes."""
HEADER_SIZE = "Inference-Header-Content-Length"
BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
BINARY_TYPE = re.compile(re.escape(BINARY) + "(.*)")
THROTTLED = frozenset({"ThrottlingException", "TooManyRequestsException", "ModelNotReadyException"})
"""Error codes that mean 429 whatever the status."""
CONNECTION_FAILURES = (aws.HTTPClientError, aws.ConnectionError, aws.IncompleteReadError)
"""botocore's errors of a connection, not of credentials or parameters."""
ONCE = urllib3.Retry(False)


class HttpServer:
    """Asks a model of the server at `url` (http://host:8000). `timeout_s` bounds one attempt, from the connection to
    the last byte of the answer, which has at most `max_answer_bytes`.
    """

    def __init__(
        self,
        url: str,
        model: str,
        version: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        connections: int = 16,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        """Raises `UsageError` where `url` is none of a server."""
        parsed = _parsed(url)
        model_path = f"/v2/models/{quote(model, safe='')}" + (f"/versions/{quote(version, safe='')}" if version else "")
        self._path = f"{(parsed.path or '').rstrip('/')}{model_path}/infer"
        self._where = f"{url.rstrip('/')}{model_path}/infer"
        self._timeout_s, self._max_answer_bytes = timeout_s, max_answer_bytes
        pool = urllib3.HTTPSConnectionPool if parsed.scheme == "https" else urllib3.HTTPConnectionPool
        self._pool = bounded(pool)(str(parsed.host), parsed.port, maxsize=connections)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

    def send(self, request: Body, within_s: float) -> Body:
        within_s = min(within_s, self._timeout_s)
        with Attempt(within_s=within_s, max_bytes=self._max_answer_bytes) as attempt:
            try:
                response = self._pool.urlopen(
                    "POST",
                    self._path,
                    request.content,
                    _headers(request),
                    retries=ONCE,
                    redirect=False,
                    preload_content=False,
                    decode_content=False,
                )
                content = _content(response, response.headers, self._max_answer_bytes)
            except (http.HTTPError, OSError) as error:
                raise _failure(self._where, error, attempt, within_s) from error
        if response.status != 200:
            asked_s = retry_after_s(response.headers.get("Retry-After"), time.time())
            raise Refused(self._where, response.status, content.decode(errors="replace"), asked_s)
        return Body.received(content, response.headers.get(HEADER_SIZE))


class SageMakerEndpoint:
    """Asks an endpoint by its name; on one of many models, `target_model` is the archive's name below its prefix.
    `timeout_s` bounds one attempt and `max_answer_bytes` its answer; `client` is boto3's for sagemaker-runtime, made
    where none is given. Its search for credentials is outside of the bounds.
    """

    def __init__(
        self,
        name: str,
        *,
        target_model: str | None = None,
        timeout_s: float = TIMEOUT_S,
        connections: int = 16,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        client: Any = None,
    ) -> None:
        self._asked = {"EndpointName": name, **({} if target_model is None else {"TargetModel": target_model})}
        self._where = f"Endpoint {name}" if target_model is None else f"Endpoint {name}, model {target_model}"
        self._timeout_s, self._max_answer_bytes = timeout_s, max_answer_bytes
        with translate_aws_errors("a client of sagemaker-runtime"):
            self._client = client or boto3.Session().client("sagemaker-runtime", config=_config(timeout_s, connections))
        bound_connections(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def send(self, request: Body, within_s: float) -> Body:
        """Raises `InferenceFailed`, or `AwsUnavailable` where there are no credentials or no region."""
        where, within_s = self._where, min(within_s, self._timeout_s)
        with (
            translate_aws_errors("InvokeEndpoint"),
            Attempt(within_s=within_s, max_bytes=self._max_answer_bytes) as attempt,
        ):
            try:
                response = self._client.invoke_endpoint(
                    **self._asked, ContentType=_content_type(request), Body=request.content
                )
                headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
                content = _content(response["Body"], headers, self._max_answer_bytes)
            except aws.ClientError as error:
                raise _refused(where, error.response) from error
            except (*CONNECTION_FAILURES, http.HTTPError, OSError) as error:
                raise _failure(where, error, attempt, within_s) from error
        binary = BINARY_TYPE.fullmatch(response.get("ContentType", ""))
        return Body.received(content, binary[1] if binary else None)


def _parsed(url: str) -> urllib3.util.Url:
    try:
        parsed = urllib3.util.parse_url(url)
    except http.LocationParseError:
        parsed = urllib3.util.Url()
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.auth:
        raise UsageError(
            "A server's URL is http://HOST:PORT or https://HOST, with a path where a proxy needs one, and without "
            "credentials or a query."
        )
    return parsed


def _content(stream: Any, headers: Mapping[str, str], max_bytes: int) -> bytes:
    """Returns the bytes of a response. One without a length is read in parts: read whole, it would take as much memory
    as a chunk says that it has.
    """
    length = headers.get("content-length", "")
    if not length.isdecimal():
        return b"".join(iter(lambda: stream.read(PART_BYTES), b""))
    if len(length) > MAX_DIGITS or int(length) > max_bytes:
        stream.close()
        raise NotAnAnswer(f"it has {length:.20} bytes, more than {max_bytes}")
    content: bytes = stream.read()
    return content


def _failure(where: str, error: Exception, attempt: Attempt, within_s: float) -> InferenceFailed:
    """Returns what a broken attempt was; its bounds tell it better than the error that a library made of them."""
    causes = list(_causes(error))
    if attempt.too_large:
        return NotAnAnswer("it is larger than the client takes (max_answer_bytes)")
    if not attempt.asked and any(isinstance(cause, TimeoutError) for cause in causes):
        return Unreachable(where, f"no connection within {min(CONNECT_TIMEOUT_S, within_s):.3g} s")
    if attempt.late or isinstance(error, aws.ReadTimeoutError):
        return TimedOut(where, within_s)
    return Unreachable(where, error, may_retry=not any(map(_is_lasting, causes)))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and those that libraries wrapped, as a cause, in its context or as an argument."""
    seen: list[BaseException] = []
    found = [error]
    while found:
        each = found.pop()
        if each is None or each in seen:
            continue
        seen.append(each)
        yield each
        wrapped = (each.__cause__, each.__context__, *each.args, *getattr(each, "kwargs", {}).values())
        found += [other for other in wrapped if isinstance(other, BaseException)]


def _is_lasting(cause: BaseException) -> bool:
    """Tells what the next attempt would meet again: an untrusted certificate, no TLS at all, a name without a host."""
    if isinstance(cause, socket.gaierror):
        return cause.errno != socket.EAI_AGAIN
    return isinstance(cause, ssl.SSLError) and not isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError))


def _headers(request: Body) -> dict[str, str]:
    if request.header_size is None:
        return {"Content-Type": "application/json"}
    return {"Content-Type": "application/octet-stream", HEADER_SIZE: str(request.header_size)}


def _config(timeout_s: float, connections: int) -> Config:
    """Returns a configuration without botocore's own retries, since `Retries` decides."""
    return Config(
        connect_timeout=min(CONNECT_TIMEOUT_S, timeout_s),
        read_timeout=timeout_s,
        max_pool_connections=connections,
        retries={"total_max_attempts": 1},
    )


def _content_type(request: Body) -> str:
    return "application/json" if request.header_size is None else f"{BINARY}{request.header_size}"


def _refused(where: str, response: Mapping[str, Any]) -> Refused:
    """Returns the error of a response; a ModelError has the container's own status."""
    details, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
    status = response.get("OriginalStatusCode") or metadata.get("HTTPStatusCode", 500)
    code, message = details.get("Code", "Unknown"), response.get("OriginalMessage") or details.get("Message", "")
    asked_s = retry_after_s(metadata.get("HTTPHeaders", {}).get("retry-after"), time.time())
    return Refused(where, 429 if code in THROTTLED else status, f"{code}: {message}", asked_s)
