"""Servers that answer KServe v2 requests: any over HTTP, and a SageMaker endpoint with Triton behind it.

`HttpServer` asks Triton itself, an ECS service behind its load balancer, or KServe. `SageMakerEndpoint` signs its
requests and keeps its connections; Triton's SageMaker front end takes the binary form only under a Content-Type of its
own, which carries the header's size.
"""

import re
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import boto3
import urllib3
from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from botocore.exceptions import ConnectTimeoutError as AwsConnectTimeoutError
from urllib3.exceptions import ConnectTimeoutError, HTTPError, TimeoutError

from aws_api.errors import translate_aws_errors
from inference_recommender.client.kserve import Body, InferenceFailed, Refused, TimedOut, Unreachable

CONNECT_TIMEOUT_S = 1.0
HEADER_SIZE = "Inference-Header-Content-Length"
BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
THROTTLED = frozenset({"ThrottlingException", "TooManyRequestsException", "ModelNotReadyException"})
"""Error codes that mean 429 whatever the status."""
FAILURES = (
    EndpointConnectionError,
    AwsConnectTimeoutError,
    ConnectionClosedError,
    ReadTimeoutError,
    ResponseStreamingError,
)


class HttpServer:
    """Asks a model of the server at `url` (http://host:8000). `timeout_s` bounds one attempt's wait for the answer."""

    def __init__(
        self, url: str, model: str, version: str | None = None, *, timeout_s: float = 5.0, connections: int = 16
    ) -> None:
        path = f"/v2/models/{quote(model, safe='')}" + (f"/versions/{quote(version, safe='')}" if version else "")
        self._url = f"{url.rstrip('/')}{path}/infer"
        self._timeout_s = timeout_s
        timeout = urllib3.Timeout(connect=min(CONNECT_TIMEOUT_S, timeout_s), read=timeout_s)
        self._pool = urllib3.PoolManager(maxsize=connections, timeout=timeout, retries=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._pool.clear()

    def send(self, request: Body) -> Body:
        try:
            response = self._pool.request("POST", self._url, body=request.content, headers=_headers(request))
        except ConnectTimeoutError as error:  # a subclass of TimeoutError, but nothing was sent
            raise Unreachable(self._url, error) from error
        except TimeoutError as error:
            raise TimedOut(self._url, self._timeout_s) from error
        except HTTPError as error:
            raise Unreachable(self._url, error) from error
        if response.status != 200:
            raise Refused(self._url, response.status, response.data.decode(errors="replace"))
        size = response.headers.get(HEADER_SIZE, "")
        return Body(content=response.data, header_size=int(size) if size.isdecimal() else None)


class SageMakerEndpoint:
    """Asks an endpoint by its name. `timeout_s` bounds one attempt's wait for the answer; `client` is boto3's for
    sagemaker-runtime, made where none is given.
    """

    def __init__(self, name: str, *, timeout_s: float = 5.0, connections: int = 16, client: Any = None) -> None:
        self._name = name
        self._timeout_s = timeout_s
        with translate_aws_errors("a client of sagemaker-runtime"):
            self._client = client or boto3.Session().client("sagemaker-runtime", config=_config(timeout_s, connections))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def send(self, request: Body) -> Body:
        """Raises `InferenceFailed`, or `AwsUnavailable` where there are no credentials or no region."""
        with translate_aws_errors("InvokeEndpoint"):
            try:
                response = self._client.invoke_endpoint(
                    EndpointName=self._name, ContentType=_content_type(request), Body=request.content
                )
                content = response["Body"].read()
            except (ClientError, *FAILURES) as error:
                raise self._failure(error) from error
        binary = re.fullmatch(re.escape(BINARY) + r"(\d+)", response.get("ContentType", ""))
        return Body(content=content, header_size=int(binary[1]) if binary else None)

    def _failure(self, error: Exception) -> InferenceFailed:
        where = f"Endpoint {self._name}"
        if isinstance(error, ClientError):
            return _refused(where, error.response)
        if isinstance(error, ReadTimeoutError):
            return TimedOut(where, self._timeout_s)
        return Unreachable(where, error)


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


def _refused(where: str, response: Any) -> Refused:
    """Returns the error of a response; a ModelError has the container's own status."""
    details = response.get("Error", {})
    status = response.get("OriginalStatusCode") or response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    code, message = details.get("Code", "Unknown"), response.get("OriginalMessage") or details.get("Message", "")
    return Refused(where, 429 if code in THROTTLED else status, f"{code}: {message}")
