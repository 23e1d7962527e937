"""Servers that answer KServe v2 requests: any server over HTTP, and a SageMaker endpoint with Triton behind it.

A retry has to be able to succeed, and must not add to the load of a server that is still working on the request.

Triton's SageMaker front end accepts the binary form only with a Content-Type of its own, which has the header's size.
Timeouts are urllib3's and botocore's. They bound the connection and the wait for each part of the answer.
"""

import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import botocore.exceptions as aws
import urllib3
from urllib3 import exceptions as http

from aws_api.errors import translate_aws_errors
from inference_recommender.kserve import BINARY, JSON_TYPE, SIZE_HEADER, Body, NotAResponse, content_type
from workloads import ProjectError, UsageError

if TYPE_CHECKING:
    from botocore.config import Config

TIMEOUT_S, CONNECT_TIMEOUT_S = 5.0, 2.0
"""Limits for an attempt, and for a connection and for sending a request's body."""
MAX_ANSWER_BYTES = 64 << 20
TOO_LARGE_ANSWER = "it is larger than max_answer_bytes"
PART_BYTES = 1 << 20
"""Answers are read in parts, so that a false length costs no memory."""
BINARY_TYPE = re.compile(re.escape(BINARY) + "(.*)")
THROTTLED = frozenset({"ThrottlingException", "TooManyRequestsException", "ModelNotReadyException"})
"""Error codes that mean 429 whatever the status."""
CONNECTION_FAILURES = (aws.HTTPClientError, aws.ConnectionError, aws.IncompleteReadError)
NO_CONNECTION = (http.ConnectTimeoutError, aws.ConnectTimeoutError)
PLAIN: dict[str, Any] = {"retries": urllib3.Retry(False), "redirect": False}
PLAIN |= {"preload_content": False, "decode_content": False}
RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 530})
"""HTTP statuses that are retried: throttling, restarts and errors of the server. 530 is SageMaker's
InternalDependencyException."""


class InferenceFailed(ProjectError):
    """Base of every failed request."""

    exit_code = 3
    may_retry = False
    """Whether it is safe and useful to send the request again."""
    retry_after_s: float | None = None


class Refused(InferenceFailed):
    """The server answered with an error."""

    def __init__(self, where: str, status: int, message: str, retry_after_s: float | None = None) -> None:
        self.status = status
        self.may_retry = status in RETRYABLE_STATUSES
        self.retry_after_s = retry_after_s
        super().__init__(f"{where} answered {status}: {message[:500]}")


class Unreachable(InferenceFailed):
    """No connection, or it broke before the answer. An untrusted certificate or unknown host name is not retried."""

    def __init__(self, where: str, why: object, may_retry: bool = True) -> None:
        self.may_retry = may_retry
        super().__init__(f"{where} cannot be reached: {why}")


class TimedOut(InferenceFailed):
    """No answer in time. Not retried, because the server may still work on the request."""

    def __init__(self, where: str, timeout_s: float) -> None:
        super().__init__(f"{where} gave no answer within {timeout_s:.3g} s.")


class NotAnAnswer(InferenceFailed):
    """The answer is not a KServe v2 response, or is larger than `max_answer_bytes`."""

    def __init__(self, why: str) -> None:
        super().__init__(f"The answer is not a KServe v2 response: {why}.")


def retry_after_s(value: str | None, now_s: float) -> float | None:
    """Returns the seconds of a Retry-After header (RFC 9110, 10.2.3: seconds or an HTTP date), or None if it cannot be
    read. `now_s` is in seconds since 1970.
    """
    text = (value or "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    try:
        at = parsedate_to_datetime(text)
        return max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now_s)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None


class Closing:
    """Closes on leaving a `with` block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class HttpServer(Closing):
    """Sends requests to a model of the server at `url` (http://host:8000). `timeout_s` bounds one attempt."""

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
        parsed = _parsed(url)
        model_path = f"/v2/models/{quote(model, safe='')}" + (f"/versions/{quote(version, safe='')}" if version else "")
        self._path = f"{(parsed.path or '').rstrip('/')}{model_path}/infer"
        self._where = f"{url.rstrip('/')}{model_path}/infer"
        self._timeout_s, self._max_answer_bytes = timeout_s, max_answer_bytes
        pool = urllib3.HTTPSConnectionPool if parsed.scheme == "https" else urllib3.HTTPConnectionPool
        self._pool = pool(str(parsed.host), parsed.port, maxsize=connections)

    def close(self) -> None:
        self._pool.close()

    def send(self, request: Body, within_s: float) -> Body:
        within_s = min(within_s, self._timeout_s)
        deadline_s = time.monotonic() + within_s
        try:
            response = self._pool.urlopen(
                "POST",
                self._path,
                request.content,
                request_headers(request),
                timeout=urllib3.Timeout(connect=min(CONNECT_TIMEOUT_S, within_s), total=within_s),
                **PLAIN,
            )
            content = _content(response, response.headers, self._max_answer_bytes, deadline_s)
        except (http.HTTPError, OSError) as error:
            raise _failure(self._where, error, within_s) from error
        if response.status != 200:
            wait_s = retry_after_s(response.headers.get("Retry-After"), time.time())
            raise Refused(self._where, response.status, content.decode(errors="replace"), wait_s)
        return _received(content, response.headers.get(SIZE_HEADER))


class SageMakerEndpoint(Closing):
    """Sends requests to an endpoint by its name. `target_model` is an archive of a multi-model endpoint.

    `timeout_s` bounds one attempt. An answer has at most `max_answer_bytes`. A given `client` for sagemaker-runtime
    keeps its own timeouts and retries.
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
        self._target = {"EndpointName": name, **({} if target_model is None else {"TargetModel": target_model})}
        self._where = f"Endpoint {name}" if target_model is None else f"Endpoint {name}, model {target_model}"
        self._timeout_s, self._max_answer_bytes = timeout_s, max_answer_bytes
        if client is None:
            import boto3  # half of the client's import time

            with translate_aws_errors("a client of sagemaker-runtime"):
                client = boto3.Session().client("sagemaker-runtime", config=config(timeout_s, connections))
        self._client = client

    def close(self) -> None:
        self._client.close()

    def send(self, request: Body, within_s: float) -> Body:
        """Raises `InferenceFailed`, or `AwsUnavailable` without credentials or a region.

        botocore's timeouts are the client's, so an attempt may take longer than `within_s`, up to `timeout_s`.
        """
        within_s = min(within_s, self._timeout_s)
        deadline_s = time.monotonic() + within_s
        with translate_aws_errors("InvokeEndpoint"):
            try:
                response = self._client.invoke_endpoint(
                    **self._target, ContentType=content_type(request.header_size), Body=request.content
                )
                headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
                content = _content(response["Body"], headers, self._max_answer_bytes, deadline_s)
            except aws.ClientError as error:
                raise _refused(self._where, error.response) from error
            except (*CONNECTION_FAILURES, http.HTTPError, OSError) as error:
                raise _failure(self._where, error, within_s) from error
        binary = BINARY_TYPE.fullmatch(response.get("ContentType", ""))
        return _received(content, binary[1] if binary else None)


def config(timeout_s: float, connections: int = 10) -> "Config":
    """Returns botocore's configuration of an endpoint's client. `Retries` replaces botocore's own retries."""
    from botocore.config import Config  # most of botocore

    return Config(
        connect_timeout=min(CONNECT_TIMEOUT_S, timeout_s),
        read_timeout=timeout_s,
        max_pool_connections=connections,
        retries={"total_max_attempts": 1},
    )


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


def _content(stream: Any, headers: Mapping[str, str], max_bytes: int, deadline_s: float) -> bytes:
    """Returns the bytes of a response. Raises `TimeoutError` between two parts after `deadline_s`."""
    length = headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 15 or int(length) > max_bytes):
        stream.close()
        raise NotAnAnswer(f"it has {length:.20} bytes, more than {max_bytes}")
    read = getattr(stream, "read1", stream.read)  # botocore's stream has no read1
    parts, size = [], 0
    while part := read(PART_BYTES):
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            stream.close()
            raise NotAnAnswer(TOO_LARGE_ANSWER)
        if time.monotonic() > deadline_s:
            stream.close()
            raise TimeoutError("the answer is not complete")
    return b"".join(parts)


def _received(content: bytes, header_size: str | None) -> Body:
    try:
        return Body.received(content, header_size)
    except NotAResponse as error:
        raise NotAnAnswer(str(error)) from error


def _failure(where: str, error: Exception, within_s: float) -> InferenceFailed:
    causes = list(_causes(error))
    if any(isinstance(cause, NO_CONNECTION) and not isinstance(cause, http.NewConnectionError) for cause in causes):
        return Unreachable(where, f"no connection within {min(CONNECT_TIMEOUT_S, within_s):.3g} s")
    if any(isinstance(cause, (TimeoutError, http.ReadTimeoutError, aws.ReadTimeoutError)) for cause in causes):
        return TimedOut(where, within_s)
    return Unreachable(where, error, may_retry=not any(map(_is_lasting, causes)))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and those that libraries wrapped, as a cause, in its context or as an argument."""
    seen: list[BaseException] = []
    unseen = [error]
    while unseen:
        each = unseen.pop()
        if each is not None and each not in seen:
            seen.append(each)
            yield each
            wrapped = (each.__cause__, each.__context__, *each.args, *getattr(each, "kwargs", {}).values())
            unseen += [other for other in wrapped if isinstance(other, BaseException)]


def _is_lasting(cause: BaseException) -> bool:
    """Returns whether the next attempt fails too: an untrusted certificate, no TLS, a name without a host."""
    if isinstance(cause, socket.gaierror):
        return cause.errno != socket.EAI_AGAIN
    return isinstance(cause, ssl.SSLError) and not isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError))


def request_headers(request: Body) -> dict[str, str]:
    """Returns the HTTP headers of a request to a server other than SageMaker."""
    if request.header_size is None:
        return {"Content-Type": JSON_TYPE}
    return {"Content-Type": "application/octet-stream", SIZE_HEADER: str(request.header_size)}


def _refused(where: str, response: Mapping[str, Any]) -> Refused:
    """Returns the error of a response. A ModelError has the container's own status."""
    details, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
    status = response.get("OriginalStatusCode") or metadata.get("HTTPStatusCode", 500)
    code, message = details.get("Code", "Unknown"), response.get("OriginalMessage") or details.get("Message", "")
    wait_s = retry_after_s(metadata.get("HTTPHeaders", {}).get("retry-after"), time.time())
    return Refused(where, 429 if code in THROTTLED else status, f"{code}: {message}", wait_s)
