"""A SageMaker endpoint with Triton behind it, by its name. Requests are signed; connections are kept.

Triton's SageMaker front end takes the binary form only under its own Content-Type, which carries the header's size.
"""

import re
from types import TracebackType
from typing import Any, Self

import boto3
from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
    ResponseStreamingError,
)

from aws_api.errors import translate_aws_errors
from inference_recommender.client.errors import InferenceFailed, Refused, TimedOut, Unreachable
from inference_recommender.client.kserve import Body

BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
CONNECT_TIMEOUT_S = 1.0
THROTTLED = frozenset({"ThrottlingException", "TooManyRequestsException", "ModelNotReadyException"})
"""Codes that mean 429 whatever the status."""


class SageMakerEndpoint:
    """`timeout_s` bounds one attempt's wait for the answer. A `client` of sagemaker-runtime may be brought."""

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
        """Also raises `AwsUnavailable`, where there are no credentials or no region."""
        with translate_aws_errors("InvokeEndpoint"):
            try:
                response = self._client.invoke_endpoint(
                    EndpointName=self._name, ContentType=_content_type(request), Body=request.content
                )
                content = response["Body"].read()
            except (ClientError, *FAILURES) as error:
                raise self._failure(error) from error
        found = re.fullmatch(re.escape(BINARY) + r"(\d+)", response.get("ContentType", ""))
        return Body(content=content, header_size=int(found[1]) if found else None)

    def _failure(self, error: Exception) -> InferenceFailed:
        where = f"Endpoint {self._name}"
        if isinstance(error, ClientError):
            return _refused(where, error.response)
        if isinstance(error, ReadTimeoutError):
            return TimedOut(where, self._timeout_s)
        return Unreachable(where, error)


FAILURES = (
    EndpointConnectionError,
    ConnectTimeoutError,
    ConnectionClosedError,
    ReadTimeoutError,
    ResponseStreamingError,
)


def _config(timeout_s: float, connections: int) -> Config:
    """Without botocore's own retries: `Retries` decides."""
    return Config(
        connect_timeout=min(CONNECT_TIMEOUT_S, timeout_s),
        read_timeout=timeout_s,
        max_pool_connections=connections,
        retries={"total_max_attempts": 1},
    )


def _content_type(request: Body) -> str:
    return "application/json" if request.header_size is None else f"{BINARY}{request.header_size}"


def _refused(where: str, response: Any) -> Refused:
    """A ModelError is the container's: its own status is the one that tells."""
    details = response.get("Error", {})
    status = response.get("OriginalStatusCode") or response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    code, message = details.get("Code", "Unknown"), response.get("OriginalMessage") or details.get("Message", "")
    return Refused(where, 429 if code in THROTTLED else status, f"{code}: {message}")
