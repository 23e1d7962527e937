"""The routes: status codes, the log of errors, and large bodies."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from containers.encoder.row import Refusal
from containers.neuron import application, kserve
from containers.neuron.application import LINES_PERIOD_S, MAX_LINES, Encode, ErrorResponses, InferenceRoutes
from containers.neuron.batching import QUEUED_BATCHES, Batcher, CoreWatch, Rows
from containers.neuron.http_server import HttpRequest, HttpResponse
from containers.neuron.telemetry import RequestRecord
from tests.containers.encoder.encoder_miniature import CLASSIFICATION
from tests.containers.neuron.neuron_server import SERVING, document
from tests.containers.neuron.stub_server import StubSteps

GOOD = json.loads(document("red"))


def answer_all(rows: Rows) -> Sequence[Any]:
    return [{"LABEL": "buy", "SCORE": 0.5} for _ in rows]


class Answered:
    """The answers of a model to requests, one after the other, and what it logged and counted."""

    def __init__(
        self,
        *requests: HttpRequest,
        predict: Callable[[Rows], Sequence[Any]] = answer_all,
        encode: Encode = list,
    ):
        self.log: list[str] = []
        self.record = RequestRecord()
        self.answers: list[HttpResponse] = []
        asyncio.run(self._ask(requests, predict, encode))

    async def _ask(
        self, requests: Sequence[HttpRequest], predict: Callable[[Rows], Sequence[Any]], encode: Encode
    ) -> None:
        batcher = Batcher(StubSteps(predict), SERVING, 1, CoreWatch(time.monotonic))
        batcher.start()
        errors = ErrorResponses(self.log.append)
        model = InferenceRoutes(batcher, encode, CLASSIFICATION, SERVING, self.record, errors)
        self.answers = [await model.respond(request) for request in requests]
        await batcher.stop()

    @property
    def only(self) -> tuple[int, Any]:
        [answer] = self.answers
        return answer.status, json.loads(answer.body or b"null")


def request(
    body: object = GOOD, path: str = "/invocations", method: str = "POST", headers: dict[bytes, bytes] | None = None
) -> HttpRequest:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpRequest(method, path, headers or {}, raw, keep_alive=True)


INPUT = GOOD["inputs"][0]
MANY_INPUTS = [{"name": f"X{n}", "shape": [0, 1], "datatype": "BYTES", "data": []} for n in range(9999)]
HOSTILE: list[tuple[HttpRequest, int]] = [
    (request({**GOOD, "outputs": [{"name": []}]}), 400),
    (request({**GOOD, "outputs": [{"name": "LABEL"}] * 50_000}), 400),
    (request(b"[" * 100_000), 400),
    (request(b"\x1f\x8b\x08\x00garbage", headers={b"content-encoding": b"gzip"}), 415),
    (request({"inputs": [{"name": "X" * 100_000}]}), 400),
    (request({"inputs": MANY_INPUTS}), 400),
    (request({"inputs": [{**INPUT, "data": [{"a": [[]]}]}]}), 400),
    (request({"inputs": [{**INPUT, "shape": [10**4000, 1]}]}), 400),
    (request(document(*["\udc00"])), 400),
    (request(path="/" + "x" * 10_000), 404),
    (request(method="DELETE"), 405),
]


def test_an_error_of_the_client_is_4xx_with_a_short_answer_and_a_line_of_log() -> None:
    """A client would retry a 500, and alarms would sound."""
    answered = Answered(*(asked for asked, _ in HOSTILE), encode=lambda rows: [Refusal("is bad") for _ in rows])
    assert [answer.status for answer in answered.answers] == [status for _, status in HOSTILE]
    assert all(len(answer.body) < 4000 for answer in answered.answers)
    assert len(answered.log) == len(HOSTILE)
    assert not any("\n" in line or "Traceback" in line for line in answered.log)
    assert answered.record.take()["requests"] == 0


def test_an_error_of_the_model_is_500_with_its_traceback() -> None:
    def fail(rows: Rows) -> Sequence[Any]:
        raise ValueError("no such core")

    answered = Answered(request(), predict=fail)
    assert answered.only == (500, {"error": "The model failed: ValueError: no such core"})
    [line] = answered.log
    assert line.startswith('500 "The model failed: ValueError: no such core"\nTraceback (most recent call last):')
    assert answered.record.take() == {"requests": 1, "errors": 1, "latencies_ms": []}


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ([{"LABEL": "buy", "SCORE": float("nan")}], "ValueError: Out of range float values are not JSON compliant"),
        ([], "RuntimeError: the model gave 0 answers to 1 rows"),
    ],
)
def test_an_answer_that_cannot_be_sent_is_an_error_of_the_model(answers: Sequence[Any], error: str) -> None:
    status, body = Answered(request(), predict=lambda rows: answers).only
    assert (status, body["error"].startswith(f"The model failed: {error}")) == (500, True), body


def test_repeated_errors_do_not_fill_the_log() -> None:
    lines: list[str] = []
    now = 0.0
    errors = ErrorResponses(lines.append, lambda: now)
    for _ in range(5000):
        errors.answer(400, "no")
    assert lines == ['400 "no"'] * MAX_LINES
    now = LINES_PERIOD_S
    errors.answer(400, "line\nbreak")
    assert lines[MAX_LINES:] == ['400 "line\\nbreak"']


def test_a_large_body_is_parsed_in_a_thread_and_a_small_one_in_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    parse = kserve.parse

    def parse_and_tell(*arguments: Any) -> kserve.InferRequest:
        threads.append(threading.current_thread().name)
        return parse(*arguments)

    monkeypatch.setattr(kserve, "parse", parse_and_tell)
    large = document("red") + b" " * application.READ_AT_ONCE
    answered = Answered(request(), request(large))
    assert [answer.status for answer in answered.answers] == [200, 200]
    assert threads == ["MainThread", "read_0"]


def test_a_full_queue_is_503_with_retry_after() -> None:
    """The model blocks while the queue fills."""
    entered, go = threading.Event(), threading.Event()

    def wait(rows: Rows) -> Sequence[Any]:
        entered.set()
        go.wait(60)
        return answer_all(rows)

    async def crowd() -> list[HttpResponse]:
        batcher = Batcher(StubSteps(wait), SERVING, 1, CoreWatch(time.monotonic))
        batcher.start()
        errors = ErrorResponses(lambda line: None)
        model = InferenceRoutes(batcher, list, CLASSIFICATION, SERVING, RequestRecord(), errors)
        full = request(document(*["red"] * SERVING.max_batch_size))
        first = asyncio.create_task(model.respond(full))
        await asyncio.to_thread(entered.wait)
        queued = [asyncio.create_task(model.respond(full)) for _ in range(QUEUED_BATCHES)]
        await asyncio.sleep(0)
        refused = await model.respond(request())
        for task in queued:
            task.cancel()
        await asyncio.sleep(0)
        again = asyncio.create_task(model.respond(request()))
        await asyncio.sleep(0)
        go.set()
        answers = [await first, refused, await again]
        await batcher.stop()
        return answers

    answered, refused, again = asyncio.run(crowd())
    assert (answered.status, refused.status, again.status) == (200, 503, 200)
    assert json.loads(refused.body) == {"error": "512 rows wait for an answer; at most 512 may wait."}
    assert refused.headers == {"Retry-After": "1"}
