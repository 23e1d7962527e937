"""The HTTP routes: SageMaker's /ping and /invocations, and KServe v2's names for ECS.

Errors are JSON, {"error": sentence}: 4xx for the client's, 500 for the model's, 503 while the queue is
full. Each is a line of the log, up to a limit per minute. A worker whose cores do not answer ends, so /ping needs no
check.
"""

import asyncio
import json
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ..encoder.settings import Settings
from . import kserve
from .batching import Batcher, QueueFull
from .http_server import HttpRequest, HttpResponse
from .placement import ServerSettings
from .telemetry import RequestRecord

READ_AT_ONCE = 16_384
"""A larger body is parsed and tokenised in a thread, one at a time, so a health check waits for one of them at most."""
MAX_LINES, LINES_PERIOD_S = 20, 60.0
MAX_SENTENCE = 500
"""Characters of an error. Some sentences name every row."""

Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]
Encode = Callable[[Sequence[Mapping[str, object]]], Sequence[object]]
log = logging.getLogger(__name__)


class ErrorResponses:
    """Answers failed requests, and logs the first `MAX_LINES` of them in each period."""

    def __init__(self, write: Callable[[str], None] = log.warning, now: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._now = now
        self._began = now()
        self._count = 0

    def answer(self, status: int, sentence: str, cause: "Exception | None" = None, **headers: str) -> HttpResponse:
        """Returns the answer. The traceback of `cause`, a fault of this server, is logged."""
        if len(sentence) > MAX_SENTENCE:
            sentence = sentence[:MAX_SENTENCE] + "…"
        if self._now() - self._began >= LINES_PERIOD_S:
            self._began, self._count = self._now(), 0
        self._count += 1
        if self._count <= MAX_LINES:
            trace = "".join(traceback.format_exception(type(cause), cause, cause.__traceback__)) if cause else ""
            self._write(f"{status} {json.dumps(sentence)}\n{trace}".rstrip())  # escapes a client's line breaks
        if status == 503:
            headers = {**headers, "Retry-After": "1"}
        return HttpResponse(status, json.dumps({"error": sentence}).encode(), headers=headers)


class InferenceRoutes:
    """Answers requests with a worker's model, and records their latencies.

    `encode` tokenises rows, or refuses them.
    """

    def __init__(
        self,
        batcher: Batcher,
        encode: Encode,
        settings: Settings,
        serving: ServerSettings,
        record: RequestRecord,
        errors: ErrorResponses,
    ) -> None:
        self._batcher = batcher
        self._encode = encode
        self._errors = errors
        self._record = record
        self._fields, self._kind = settings.fields, settings.kind
        self._serving = serving
        self._reading = ThreadPoolExecutor(1, "read")
        get, post, model = ("GET", "HEAD"), ("POST",), f"/v2/models/{serving.model}"
        self._routes: dict[str, tuple[tuple[str, ...], Handler]] = {
            **dict.fromkeys(("/ping", "/v2/health/live", "/v2/health/ready", f"{model}/ready"), (get, _healthy)),
            **dict.fromkeys(("/invocations", f"{model}/infer"), (post, self._infer)),
        }

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """Raises only CancelledError, when the client has hung up."""
        methods, handler = self._routes.get(request.path, ((), None))
        if handler is None:
            return self._errors.answer(404, f"{request.method} {request.path[:200]}: Not Found.")
        if request.method not in methods:
            sentence = f"{request.method} {request.path}: Method Not Allowed."
            return self._errors.answer(405, sentence, Allow=", ".join(methods))
        try:
            return await handler(request)
        except kserve.BadRequest as error:
            return self._errors.answer(400, str(error))
        except QueueFull as error:
            self._record.add_error()
            return self._errors.answer(503, str(error))
        except Exception as error:
            self._record.add_error()
            return self._errors.answer(500, f"The model failed: {type(error).__name__}: {error}", error)

    async def _infer(self, request: HttpRequest) -> HttpResponse:
        arrived = time.monotonic()
        encoding = request.headers.get(b"content-encoding", b"identity").decode("latin-1")
        if encoding.lower() != "identity":
            return self._errors.answer(415, f"Content-Encoding '{encoding[:40]}' is not supported. Send plain JSON.")
        if len(request.body) <= READ_AT_ONCE:
            parsed, rows = self._read(request)
        else:
            parsed, rows = await asyncio.get_running_loop().run_in_executor(self._reading, self._read, request)
        answers = await self._batcher.answer(rows)
        content, size = kserve.answer(parsed, answers, self._serving.model, self._kind)
        self._record.add((time.monotonic() - arrived) * 1000)
        if size is None:
            return HttpResponse(200, content)
        by_sagemaker = request.path == "/invocations"
        content_type = f"{kserve.SAGEMAKER_BINARY}{size}" if by_sagemaker else "application/octet-stream"
        return HttpResponse(200, content, content_type, {kserve.JSON_SIZE: str(size)})

    def _read(self, request: HttpRequest) -> "tuple[kserve.InferRequest, Sequence[object]]":
        body = kserve.InferBody(request.body, kserve.json_size(request.headers))
        parsed = kserve.parse(body, self._fields, self._kind, self._serving.max_batch_size)
        rows = self._encode(parsed.rows)
        kserve.check(rows)
        return parsed, rows


async def _healthy(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200)
