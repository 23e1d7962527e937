"""A KServe v2 server asked over gRPC: Triton's port 8001, as the tasks of an ECS service have it.

    from inference_recommender.client.grpc_server import GrpcServer   # needs the extra `grpc`: grpcio, tritonclient

    with GrpcServer("grpc://spellcheck.internal:8001", "spellcheck") as server:
        answer = InferenceClient(server).infer({"TEXT": [["runing sheos"]]})

gRPC's ModelInfer carries the very tensors of the binary form over HTTP, so a request is that form taken apart into a
message, and the answer's message put together as one: `InferenceClient` encodes, retries and checks as it does for the
others. A channel is one connection of HTTP/2, which a balancer of connections gives to one task for as long as it
lives; so there are several, which take turns. The deadline of an attempt covers connection, request and answer.

It is a module of its own, because it needs packages that the others do not.
"""

import itertools
import json
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import grpc
from tritonclient.grpc import service_pb2

from inference_recommender.client.attempt import CONNECT_TIMEOUT_S
from inference_recommender.client.failures import InferenceFailed, NotAnAnswer, Refused, TimedOut, Unreachable
from inference_recommender.client.kserve import Body
from inference_recommender.client.servers import MAX_ANSWER_BYTES, TIMEOUT_S
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
"""The HTTP status of a gRPC code, by google/rpc/code.proto; any other is 500."""
TOO_LARGE = "larger than max"
"""Part of what grpcio says of an answer that has more bytes than the channel takes."""

UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


class GrpcServer:
    """Asks a model of the server at `url`, grpc://host:port, or grpcs:// with TLS. `timeout_s` bounds one attempt, and
    an answer has at most `max_answer_bytes`.
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
        """`certificates` are those to trust with grpcs://, as PEM; None: the system's. Raises `UsageError` where `url`
        is none of a server.
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
    """Returns what gRPC connects to, and whether with TLS."""
    parts = urlsplit(url)
    try:
        plain = bool(parts.hostname and parts.port) and not (parts.query or parts.username or parts.path.strip("/"))
    except ValueError:
        plain = False
    if parts.scheme not in ("grpc", "grpcs") or not plain:
        raise UsageError(
            f"A gRPC server's URL is grpc://HOST:PORT, or grpcs://HOST:PORT with TLS, and nothing else; got '{url}'."
        )
    return parts.netloc, parts.scheme == "grpcs"


def _options(max_answer_bytes: int) -> list[tuple[str, int]]:
    """Returns the channel's options: `Retries` decides what is sent again, and a server that is back is found soon."""
    connect_ms = round(CONNECT_TIMEOUT_S * 1000)
    return [
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),  # else channels to one address share a connection
        ("grpc.max_receive_message_length", max_answer_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.min_reconnect_backoff_ms", connect_ms),  # it bounds an attempt to connect, too
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", connect_ms),
    ]


def _message(request: Body, model: str, version: str) -> Any:
    """Returns the ModelInferRequest of a request in the binary form, which `encode` made."""
    if request.header_size is None:
        raise UsageError(
            "gRPC has no JSON form of a request: make the InferenceClient of a GrpcServer with binary=True."
        )
    header, at = json.loads(request.content[: request.header_size]), request.header_size
    message = service_pb2.ModelInferRequest(model_name=model, model_version=version)
    for tensor in header["inputs"]:
        message.inputs.add(name=tensor["name"], datatype=tensor["datatype"], shape=tensor["shape"])
        end = at + tensor["parameters"]["binary_data_size"]
        message.raw_input_contents.append(request.content[at:end])
        at = end
    for output in header.get("outputs", ()):
        message.outputs.add(name=output["name"])
    return message


def _body(answer: Any) -> Body:
    """Returns a ModelInferResponse in the binary form, which `decode` checks."""
    raw = answer.raw_output_contents
    if len(raw) != len(answer.outputs):
        raise NotAnAnswer(f"{len(raw)} of its {len(answer.outputs)} outputs are raw bytes, as Triton sends them all")
    outputs = [
        {
            "name": output.name,
            "datatype": output.datatype,
            "shape": list(output.shape),
            "parameters": {"binary_data_size": len(data)},
        }
        for output, data in zip(answer.outputs, raw, strict=True)
    ]
    header = json.dumps({"outputs": outputs}).encode()
    return Body(content=b"".join((header, *raw)), header_size=len(header))


def _failure(where: str, code: grpc.StatusCode, details: str, within_s: float) -> InferenceFailed:
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimedOut(where, within_s)
    if code is grpc.StatusCode.UNAVAILABLE:
        return Unreachable(where, details, may_retry=UNTRUSTED not in details)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and TOO_LARGE in details:
        return NotAnAnswer("it is larger than the client takes (max_answer_bytes)")
    return Refused(where, STATUSES.get(code, 500), f"{code.name}: {details}")
