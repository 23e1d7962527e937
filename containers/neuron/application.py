"""The HTTP routes: SageMaker's /ping and /invocations, and the same under KServe v2's names, for ECS.

Errors are JSON, {"error": sentence}: 400 for a mistake of the caller, 413 for a body over SageMaker's limit, 500 for an
error of the model, 503 while the model is being loaded.
"""

import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from ..encoder.settings import Settings
from . import kserve
from .batching import Batcher
from .server_settings import ServerSettings
from .telemetry import Record

BODY_LIMIT = 6_291_456  # bytes of a request; SageMaker's own limit

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
log = logging.getLogger(__name__)


class Model:
    """Answers inference requests with a worker's model, and records their latencies."""

    def __init__(self, batcher: Batcher, settings: Settings, serving: ServerSettings, record: Record) -> None:
        self._batcher = batcher
        self._record = record
        self._settings = settings
        self._serving = serving

    async def infer(self, request: web.Request) -> web.Response:
        body = await request.read()
        arrived = time.monotonic()
        serving, settings = self._serving, self._settings
        parsed = kserve.parse(
            body, request.content_type, settings.fields, settings.task, max_rows=serving.max_batch_size
        )
        try:
            answers = await self._batcher.answer(parsed.rows)
        except Exception:
            self._record.add_error()
            raise
        answered = _json(200, kserve.answer(parsed, answers, serving.model, settings.task))
        self._record.add((time.monotonic() - arrived) * 1000)
        return answered


def loading() -> web.Application:
    """Returns the application that answers 503 until every worker has its model."""

    async def not_ready(request: web.Request) -> web.Response:
        return _json(503, kserve.error("The model is being loaded."))

    application = web.Application()
    application.router.add_get("/v2/health/live", _fine)
    application.router.add_route("*", "/{path:.*}", not_ready)
    return application


def serving(model: Model, name: str) -> web.Application:
    application = web.Application(middlewares=[_errors_as_json], client_max_size=BODY_LIMIT)
    for path in ("/ping", "/v2/health/live", "/v2/health/ready", f"/v2/models/{name}/ready"):
        application.router.add_get(path, _fine)
    for path in ("/invocations", f"/v2/models/{name}/infer"):
        application.router.add_post(path, model.infer)
    return application


async def _fine(request: web.Request) -> web.Response:
    return web.Response()


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except kserve.BadRequest as error:
        return _json(400, kserve.error(str(error)))
    except web.HTTPRequestEntityTooLarge:
        return _json(413, kserve.error(f"The body is over {BODY_LIMIT} bytes."))
    except web.HTTPException as error:
        return _json(error.status, kserve.error(f"{request.method} {request.path}: {error.reason}."))
    except Exception as error:
        log.exception("The model failed")
        return _json(500, kserve.error(f"The model failed: {type(error).__name__}: {error}"))


def _json(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")
