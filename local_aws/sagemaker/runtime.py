"""`sagemaker-runtime.invoke_endpoint`: a WSGI middleware that passes invocations on before moto sees them.

Errors have the shape and the words of the service: 413 for a body over 6 MB, 400 for a request that the service model
rejects, 424 for everything that fails behind the endpoint. ModelLatency is the time of the model server's answer,
OverheadLatency the rest. Source:
https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_runtime_InvokeEndpoint.html
"""

import http.client
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moto.sagemaker.exceptions import ValidationError

from local_aws import service_model
from local_aws.owner_only import SIGNATURE, WsgiApplication
from local_aws.permissions.api_request import INVOCATION, read_call
from local_aws.process.model_server import ModelAnswer, ModelServer
from local_aws.sagemaker.endpoint import LocalEndpoint
from local_aws.sagemaker.endpoint_metrics import InvocationMetrics

MAX_BODY_BYTES = 6_291_456
TIMED_OUT = (
    "Your invocation timed out while waiting for a response from container primary. Review the latency metrics for "
    "each container in Amazon CloudWatch, resolve the issue, and try again."
)
ORIGINAL_CHARACTERS = 1024
_ERROR_STATUS = {"ValidationError": 400, "ModelError": 424}


@dataclass(frozen=True, slots=True)
class RuntimeAnswer:
    status: int
    headers: Mapping[str, str]
    body: bytes


def max_body_bytes(path: str) -> int | None:
    """Returns the bound of a request's body, or None where the path is no invocation's."""
    return MAX_BODY_BYTES if INVOCATION.fullmatch(path) else None


class InvocationMiddleware:
    """Answers POST /endpoints/NAME/invocations that is signed for SageMaker. Passes other requests to `application`."""

    def __init__(
        self,
        application: WsgiApplication,
        find_endpoint: Callable[[str], LocalEndpoint | None],
        metrics: InvocationMetrics,
        account_id: str,
    ) -> None:
        self._application = application
        self._find_endpoint = find_endpoint
        self._metrics = metrics
        self._account_id = account_id

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        match = INVOCATION.fullmatch(environ.get("PATH_INFO", ""))
        if match is None or environ["REQUEST_METHOD"] != "POST" or environ[SIGNATURE].service != "sagemaker":
            return self._application(environ, start_response)
        answer = self._invoke(match["name"], environ)
        headers = {**answer.headers, "Content-Length": str(len(answer.body))}
        start_response(f"{answer.status} {http.client.responses.get(answer.status, 'Error')}", list(headers.items()))
        return [answer.body]

    def _invoke(self, name: str, environ: Mapping[str, Any]) -> RuntimeAnswer:
        started = time.perf_counter()
        request = read_call(environ, "sagemaker").parameters
        try:
            service_model.check("sagemaker-runtime", "InvokeEndpoint", {**request, "Body": b""})  # it may be anything
        except ValidationError as error:
            return _error("ValidationError", str(error.message))
        body = environ["wsgi.input"].read()
        endpoint = self._find_endpoint(name)
        if endpoint is None:
            return _error("ValidationError", f"Endpoint {name} of account {self._account_id} not found.")
        for _ in range(3):  # a server that has ended refuses connections until its fleet drops it
            with endpoint.lease(request.get("TargetVariant")) as picked:
                if picked is None:
                    return self._no_variant(endpoint, environ)
                variant, server = picked
                instances = endpoint.instance_count(variant)
                sent = time.perf_counter()
                model = server.invoke(body, _forwarded(environ))
                answered = time.perf_counter()
            if not server.refuses:
                break
        answer = _model_error(model, server)
        if model.status == http.HTTPStatus.OK:
            headers = {"Content-Type": model.content_type, "x-Amzn-Invoked-Production-Variant": variant}
            answer = RuntimeAnswer(200, headers, model.body)
        self._metrics.record(
            name,
            variant,
            server.endpoint_config,
            status=model.status,
            model_us=round((answered - sent) * 1e6),
            overhead_us=round((time.perf_counter() - answered + sent - started) * 1e6),
            instances=instances,
            gpus=server.gpus,
        )
        return answer

    def _no_variant(self, endpoint: LocalEndpoint, environ: Mapping[str, Any]) -> RuntimeAnswer:
        name = endpoint.endpoint_name
        wanted = environ.get("HTTP_X_AMZN_SAGEMAKER_TARGET_VARIANT")
        if wanted and endpoint.pick(None) is not None:
            return _error("ValidationError", f"Variant {wanted} of endpoint {name} not found.")
        reason = f": {endpoint.failure_reason}" if endpoint.failure_reason else "; wait until it is InService."
        status = f"is {endpoint.endpoint_status}{reason}"
        return _error("ValidationError", f"Endpoint {name} of account {self._account_id} {status}")


def _forwarded(environ: Mapping[str, Any]) -> dict[str, str]:
    headers = {"Content-Type": environ.get("CONTENT_TYPE") or "application/octet-stream"}
    if accept := environ.get("HTTP_ACCEPT"):
        headers["Accept"] = accept
    for name, value in environ.items():
        if name.startswith("HTTP_X_AMZN_SAGEMAKER_"):
            headers[name.removeprefix("HTTP_").replace("_", "-").title()] = value
    return headers


def _model_error(model: ModelAnswer, server: ModelServer) -> RuntimeAnswer:
    """Returns 424 in the service's words, with Triton's log file in place of CloudWatch Logs."""
    original, status = model.body.decode("utf-8", "replace")[:ORIGINAL_CHARACTERS], model.status
    if status == http.HTTPStatus.GATEWAY_TIMEOUT:
        original, status = TIMED_OUT, 0
    kind = "client" if 400 <= status < 500 else "server"
    return _error(
        "ModelError",
        f'Received {kind} error ({status}) from primary with message "{original}". '
        f"See {server.log_file} for more information.",
        OriginalStatusCode=status,
        OriginalMessage=original,
        LogStreamArn=f"file://{server.log_file}",
    )


def _error(code: str, message: str, **more: object) -> RuntimeAnswer:
    headers = {"Content-Type": "application/json", "x-amzn-errortype": code}
    # Both spellings: botocore reads the error's message from `message`, and the service model has `Message`.
    body = json.dumps({"message": message, "Message": message, **more})
    return RuntimeAnswer(_ERROR_STATUS[code], headers, body.encode())
