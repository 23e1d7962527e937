"""Requests to a KServe v2 server over gRPC, such as Triton's port 8001 in an ECS service.

    from inference_recommender.client.grpc_server import GrpcServer   # needs the extra `grpc`: grpcio, tritonclient

    with GrpcServer("grpc://spellcheck.internal:8001", "spellcheck") as server:
        answer = InferenceClient(server).infer({"TEXT": [["runing sheos"]]})

A request is converted from the binary form over HTTP and the answer into it. A channel is one HTTP/2 connection, which
a network load balancer keeps on one task, so several channels take turns. The deadline of an attempt covers connection,
request and answer.
"""

import itertools
import json
from typing import Any
from urllib.parse import urlsplit

import grpc
from tritonclient.grpc import service_pb2

from inference_recommender.client.servers import (
    CONNECT_TIMEOUT_S,
    MAX_ANSWER_BYTES,
    TIMEOUT_S,
    TOO_LARGE_ANSWER,
    Closing,
    InferenceFailed,
    NotAnAnswer,
    Refused,
    TimedOut,
    Unreachable,
)
from inference_recommender.kserve import Body
from workloads import UsageError

METHOD = "/inference.GRPCInferenceService/ModelInfer"
STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNIMPLEMENTED: 501,
}
"""HTTP statuses of gRPC codes, from google/rpc/code.proto. All others are 500."""
# Parts of grpcio's messages for an answer over the channel's limit, and for an untrusted certificate.
TOO_LARGE, UNTRUSTED = "larger than max", "CERTIFICATE_VERIFY_FAILED"

GRPC_PARAMETERS = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
"""A parameter's type → its field in the message."""


class GrpcServer(Closing):
    """Sends requests to a model of the server at `url`: grpc://host:port, or grpcs:// with TLS. `timeout_s` bounds one
    attempt. An answer has at most `max_answer_bytes`.
    """

    def __init__(
        self,
        url: str,
        model: str,
        version: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        connections: int = 4,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        certificates: bytes | None = None,
    ) -> None:
        """`certificates` are trusted roots for grpcs:// as PEM; default: the system's. Raises `UsageError` if `url` is
        not a server's.
        """
        target, tls = _target(url)
        self._model, self._version = model, version or ""
        self._where = f"{url.rstrip('/')} {model}"
        self._timeout_s = timeout_s
        options = _options(max_answer_bytes)
        self._channels = [
            grpc.secure_channel(target, grpc.ssl_channel_credentials(certificates), options)
            if tls
            else grpc.insecure_channel(target, options)
            for _ in range(connections)
        ]
        self._calls = itertools.cycle(
            channel.unary_unary(
                METHOD,
                request_serializer=service_pb2.ModelInferRequest.SerializeToString,
                response_deserializer=service_pb2.ModelInferResponse.FromString,
            )
            for channel in self._channels
        )

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def send(self, request: Body, within_s: float) -> Body:
        """Makes one attempt, in `within_s` seconds at most. Raises `InferenceFailed`, or `UsageError` for JSON."""
        within_s = min(within_s, self._timeout_s)
        message = _message(request, self._model, self._version)
        try:
            answer = next(self._calls)(message, timeout=within_s)
        except grpc.RpcError as error:
            raise _failure(self._where, error.code(), error.details() or "", within_s) from error
        return _body(answer)


def _target(url: str) -> tuple[str, bool]:
    """Returns host:port, and whether to use TLS."""
    parts = urlsplit(url)
    try:
        plain = bool(parts.hostname and parts.port) and not (parts.query or parts.username or parts.path.strip("/"))
    except ValueError:
        plain = False
    if parts.scheme not in ("grpc", "grpcs") or not plain:
        raise UsageError(f"A gRPC server's URL is grpc://HOST:PORT, or grpcs://HOST:PORT with TLS. Got '{url}'.")
    return parts.netloc, parts.scheme == "grpcs"


def _options(max_answer_bytes: int) -> list[tuple[str, int]]:
    """Returns the channel's options. gRPC's retries are off, since `Retries` decides. Reconnects are quick."""
    connect_ms = round(CONNECT_TIMEOUT_S * 1000)
    return [
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),  # else channels to one address share a connection
        ("grpc.max_receive_message_length", max_answer_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.min_reconnect_backoff_ms", connect_ms),  # also bounds a connection attempt
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", connect_ms),
    ]


def _message(request: Body, model: str, version: str) -> Any:
    if request.header_size is None:
        raise UsageError("gRPC has no JSON form of a request. Create the InferenceClient with binary=True.")
    header, at = json.loads(request.content[: request.header_size]), request.header_size
    message = service_pb2.ModelInferRequest(model_name=model, model_version=version)
    for tensor in header["inputs"]:
        message.inputs.add(name=tensor["name"], datatype=tensor["datatype"], shape=tensor["shape"])
        end = at + tensor["parameters"]["binary_data_size"]
        message.raw_input_contents.append(request.content[at:end])
        at = end
    for name, value in header["parameters"].items():
        if name != "binary_data_output":
            setattr(message.parameters[name], GRPC_PARAMETERS[type(value)], value)
    for output in header.get("outputs", ()):
        message.outputs.add(name=output["name"])
    return message


def _body(answer: Any) -> Body:
    raw = answer.raw_output_contents
    if len(raw) != len(answer.outputs):
        raise NotAnAnswer(f"only {len(raw)} of its {len(answer.outputs)} outputs are raw bytes")
    outputs = []
    for output, data in zip(answer.outputs, raw, strict=True):
        form = {"datatype": output.datatype, "shape": list(output.shape)}
        outputs.append({"name": output.name, **form, "parameters": {"binary_data_size": len(data)}})
    header = json.dumps({"outputs": outputs}).encode()
    return Body(content=b"".join((header, *raw)), header_size=len(header))


def _failure(where: str, code: grpc.StatusCode, details: str, within_s: float) -> InferenceFailed:
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimedOut(where, within_s)
    if code is grpc.StatusCode.UNAVAILABLE:
        return Unreachable(where, details, may_retry=UNTRUSTED not in details)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and TOO_LARGE in details:
        return NotAnAnswer(TOO_LARGE_ANSWER)
    return Refused(where, STATUSES.get(code, 500), f"{code.name}: {details}")
