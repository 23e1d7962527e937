"""Reads and writes HTTP heads, and reads chunked bodies, between a SageMaker endpoint, our proxy and Triton.

SageMaker asks a container for `GET /ping` and `POST /invocations` (Amazon SageMaker AI Developer Guide, "Custom
inference code with hosting services"). How those become Triton's requests follows Triton's own front end for SageMaker,
for an endpoint of one model (triton-inference-server/server, src/sagemaker_server.cc): every other route is 400, a
header of the caller's is ignored except Content-Type, whose `json-header-size` tells how much of a binary body is JSON,
and what the model fails at is 400 (`told`). A container that answers these two routes itself, such as
containers/neuron, is asked them as they are. Ours are the limits, that every route begins with a key, so that a
process or a web page that was not told it reaches nothing, and with Triton the route `GET /statistics`, which SageMaker
has not: what Triton counted of its models (its statistics extension of KServe's protocol).

Pure functions from bytes to values; it knows no connections. Heads that repeat are read once (`lru_cache`): callers'
and Triton's differ by little more than the length, and reading one takes a quarter of a request's time.
"""

import hmac
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from http.client import responses
from typing import Literal
from urllib.parse import quote

import httptools

MAX_HEAD_BYTES = 16_384
MAX_BODY_BYTES = 6_291_456
"""SageMaker's limit for a request and for an answer."""
BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
"""The Content-Type of a body that is JSON and then tensors; the number of bytes of JSON follows."""
HEAD_END = b"\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_HEADER_SIZE = "Inference-Header-Content-Length"
"""How Triton's other front end names the number."""
_NOT_JSON = b'{"error":"failed to parse the request JSON buffer'
_CACHED_HEADS = 256
Route = Literal["ping", "invocations", "statistics"]
_OUR_HOSTS = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.IGNORECASE)
_LENGTH = re.compile(r"\d{1,10}", re.ASCII)


class Refused(Exception):
    """A request that is answered without the model. `answer` is the whole answer, after which the connection ends."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.answer = error(status, reason, close=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """The request that a caller's head announces."""

    route: Route
    length: int | None
    """Bytes of the body; None where it comes in chunks."""
    keep_alive: bool
    expects_continue: bool
    content_type: str
    message_head: bytes
    """The head of Triton's request; empty where the length is not known yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The answer that Triton's head announces."""

    status: int
    length: int
    head: bytes
    """The head that the caller gets, but for what `told` says."""
    keep_alive: bool


class ContainerContract:
    """The contract for one model behind routes that begin with `/KEY`."""

    def __init__(self, model: str | None, key: str) -> None:
        """`model` is the one that Triton is asked for; None where a container answers SageMaker's routes itself."""
        self._is_triton = model is not None
        methods: dict[Route, bytes] = {"ping": b"GET", "invocations": b"POST"}
        if self._is_triton:
            methods["statistics"] = b"GET"
        self._routes = [(f"/{key}/{name}".encode(), method, name) for name, method in methods.items()]
        name = quote(model or "", safe="")
        route = f"/v2/models/{name}/infer" if self._is_triton else "/invocations"
        self._infer = f"POST {route} HTTP/1.1\r\nHost: localhost\r\n"
        ready = ("/v2/health/ready", f"/v2/models/{name}/ready") if self._is_triton else ("/ping",)
        self.ready_heads = tuple(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in ready)
        """All have to be answered with 200: with Triton that of the server, and that of the model."""
        self.statistics_head = b"GET /v2/models/stats HTTP/1.1\r\nHost: localhost\r\n\r\n"
        self.read = lru_cache(_CACHED_HEADS)(self._read)
        """Reads a whole head, with the empty line that ends it, or raises `Refused`."""

    def _read(self, head: bytes) -> Ask:
        read = _Head(head)
        route, headers = self._route(read), read.headers
        _refuse_strangers(headers)
        length = read.length()
        if length is not None and length > MAX_BODY_BYTES:
            raise too_large()
        content_type = headers.get("content-type", [""])[0]
        whole = length is not None and route == "invocations"
        return Ask(
            route=route,
            length=length,
            keep_alive=read.keep_alive,
            expects_continue=headers.get("expect", [""])[0].lower() == "100-continue",
            content_type=content_type,
            message_head=self.message_head(content_type, length) if whole and length is not None else b"",
        )

    def message_head(self, content_type: str, length: int) -> bytes:
        """Returns the head of the server's request for a body of `length` bytes. Raises `Refused`."""
        if not self._is_triton:
            return f"{self._infer}Content-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n".encode("latin-1")
        size = _json_bytes(content_type, length)
        header = "" if size is None else f"{_HEADER_SIZE}: {size}\r\n"
        return f"{self._infer}{header}Content-Length: {length}\r\n\r\n".encode()

    def told(self, answer: Answer, body: bytes | bytearray) -> bytes:
        """Returns the head that a caller gets for an answer of the server's to an invocation.

        Triton's front end for SageMaker has 400 for whatever a model fails at, where its other one has 500 too, and as
        the other one 500 for a body that is not JSON, before any model sees it.
        """
        failed = answer.status == HTTPStatus.INTERNAL_SERVER_ERROR and not body.startswith(_NOT_JSON)
        if failed and self._is_triton:
            return _head(HTTPStatus.BAD_REQUEST, "application/json", answer.length)
        return answer.head

    def _route(self, head: "_Head") -> Route:
        for path, method, name in self._routes:
            if hmac.compare_digest(head.target.partition(b"?")[0], path):
                if head.method != method:
                    raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "Method Not Allowed")
                return name
        raise Refused(
            HTTPStatus.BAD_REQUEST, "There are only /ping and /invocations here, after the account's own key."
        )


class _Head:
    """A head as httptools reads it, which follows RFC 9112 strictly: no bare line feeds, folded lines or names with
    spaces.
    """

    def __init__(self, head: bytes) -> None:
        """Raises `Refused`."""
        self.target = b""
        self.headers: dict[str, list[str]] = {}
        self._complete = False
        parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(head)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as wrong:
            raise Refused(HTTPStatus.BAD_REQUEST, f"This is not a request that is served here: {wrong}") from None
        version = parser.get_http_version()
        if not self._complete or version not in ("1.0", "1.1"):
            raise Refused(HTTPStatus.BAD_REQUEST, "This is not a request of HTTP/1.1.")
        self.method: bytes = parser.get_method()
        self.is_1_1 = version == "1.1"
        self.keep_alive = self.is_1_1 and bool(parser.should_keep_alive())

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        self._complete = True

    def length(self) -> int | None:
        """Returns the body's length; None where it comes in chunks. Raises `Refused` where it is not plain which."""
        lengths, codings = self.headers.get("content-length", []), self.headers.get("transfer-encoding", [])
        if codings:
            if lengths or not self.is_1_1 or [each.lower() for each in codings] != ["chunked"]:
                raise Refused(HTTPStatus.BAD_REQUEST, "Where a body ends is told by Content-Length or by chunks.")
            return None
        if lengths and (len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0])):
            raise Refused(HTTPStatus.BAD_REQUEST, f"A Content-Length is one number, not {', '.join(lengths)}.")
        return int(lengths[0]) if lengths else 0


def _refuse_strangers(headers: dict[str, list[str]]) -> None:
    """Refuses what a browser sends for a web page: an Origin, or the Host of a name that was made to lead here."""
    hosts = headers.get("host", [])
    if "origin" in headers or len(hosts) > 1 or (hosts and not _OUR_HOSTS.fullmatch(hosts[0])):
        raise Refused(HTTPStatus.FORBIDDEN, "Only programs on this machine are answered, at 127.0.0.1 or localhost.")


def _json_bytes(content_type: str, length: int) -> int | None:
    """Returns how many bytes of a binary body are JSON; None where all are."""
    at = content_type.find(BINARY)
    if at < 0:
        return None
    given = content_type.removeprefix(BINARY)
    if at > 0:
        problem = f"expect MIME type for binary data starts with '{BINARY}', got: {content_type}"
    elif not _LENGTH.fullmatch(given):
        problem = f"Unable to parse inference header size, got: {given}"
    elif int(given) > length:
        problem = f"inference header size should be in range (0, {length}), got: {given}"
    else:
        return int(given)
    raise Refused(HTTPStatus.BAD_REQUEST, problem)


@lru_cache(_CACHED_HEADS)
def read_answer(head: bytes) -> Answer:
    """Reads the head of Triton's answer, with the empty line that ends it. Raises ValueError where it is none."""
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    version, code, *_ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if not version.startswith("HTTP/1.") or "transfer-encoding" in headers:
        raise ValueError(head)
    status, length, size = int(code), int(headers["content-length"]), headers.get(_HEADER_SIZE.lower())
    own = headers.get("content-type", "")
    return Answer(
        status=status,
        length=length,
        head=_head(
            status, f"{BINARY}{size}" if size else own if own.startswith(BINARY) else "application/json", length
        ),
        keep_alive=headers.get("connection", "").lower() != "close",
    )


def error(status: int, reason: str, *, close: bool = False) -> bytes:
    """Returns a whole answer with a reason as Triton gives it: a JSON document with the key `error`."""
    body = json.dumps({"error": reason}, separators=(",", ":")).encode()
    more = "Connection: close\r\n" if close else ""
    return _head(status, "application/json", len(body), more) + body


def empty(status: int) -> bytes:
    return _head(status, "text/plain", 0)


def too_large() -> Refused:
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A request may have {MAX_BODY_BYTES} bytes.")


def _head(status: int, content_type: str, length: int, more: str = "") -> bytes:
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        more += "Retry-After: 1\r\n"
    lines = f"Content-Type: {content_type}\r\nContent-Length: {length}\r\n{more}"
    return f"HTTP/1.1 {int(status)} {responses.get(status, 'Error')}\r\n{lines}\r\n".encode()


class ChunkedBody:
    """Reads a body that comes in chunks."""

    def __init__(self, head: bytes, most: int) -> None:
        self.complete = False
        self._most = most
        self._chunks = 0
        self._raw = 0
        self._refused: Refused | None = None
        self._into = bytearray()
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(head)

    def feed(self, data: bytes, into: bytearray) -> int:
        """Adds to `into` what `data` holds of the body, and returns how many bytes. Raises `Refused`."""
        before, self._into = len(into), into
        self._raw += len(data)
        if self._raw > MAX_BODY_BYTES + self._most * 32:  # extensions and trailers count, too
            raise too_large()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as wrong:
            if not self.complete:
                reason = f"The body is not in chunks: {wrong}"
                raise self._refused or Refused(HTTPStatus.BAD_REQUEST, reason) from None
        return len(into) - before

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > self._most:
            self._stop(Refused(HTTPStatus.BAD_REQUEST, f"The body has more than {self._most} chunks."))

    def on_body(self, body: bytes) -> None:
        self._into += body
        if len(self._into) > MAX_BODY_BYTES:
            self._stop(too_large())

    def on_message_complete(self) -> None:
        self.complete = True

    def on_message_begin(self) -> None:
        if self.complete:
            raise EOFError("whatever follows is not read")

    def _stop(self, refused: Refused) -> None:
        self._refused = refused
        raise refused
