"""The routes: whose mistake an error is, how much of it is logged, and that a large request holds up no other."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from containers.encoder.row import Refusal
from containers.neuron import application, kserve
from containers.neuron.application import LINES_PERIOD_S, MOST_LINES, Encode, Errors, Model
from containers.neuron.batching import QUEUED_BATCHES, Batcher, Rows
from containers.neuron.connection import Answer, Request
from containers.neuron.core_watch import CoreWatch
from containers.neuron.telemetry import Record
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
        *requests: Request,
        predict: Callable[[Rows], Sequence[Any]] = answer_all,
        encode: Encode = list,
        unwell: str = "",
    ):
        self.log: list[str] = []
        self.record = Record()
        self.answers: list[Answer] = []
        asyncio.run(self._ask(requests, predict, encode, unwell))

    async def _ask(
        self, requests: Sequence[Request], predict: Callable[[Rows], Sequence[Any]], encode: Encode, unwell: str
    ) -> None:
        batcher = Batcher(StubSteps(predict), SERVING, 1, CoreWatch(time.monotonic))
        batcher.start()
        errors = Errors(self.log.append)
        model = Model(batcher, encode, CLASSIFICATION, SERVING, self.record, errors, lambda: unwell)
        self.answers = [await model.respond(request) for request in requests]
        await batcher.stop()

    @property
    def only(self) -> tuple[int, Any]:
        [answer] = self.answers
        return answer.status, json.loads(answer.body or b"null")


def request(
    body: object = GOOD, path: str = "/invocations", method: str = "POST", headers: dict[bytes, bytes] | None = None
) -> Request:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request(method, path, headers or {}, raw, keep_alive=True, http_1_0=False)


HOSTILE: list[tuple[Request, int]] = [
    (request({**GOOD, "outputs": [{"name": []}]}), 400),
    (request({**GOOD, "outputs": [{"name": {}}]}), 400),
    (request({**GOOD, "outputs": [{"name": "LABEL"}] * 50_000}), 400),
    (request({**GOOD, "id": {}}), 400),
    (request(b'{"inputs": [], "id": NaN}'), 400),
    (request(b"\xff\xfe\x00"), 400),
    (request(b"[" * 100_000), 400),
    (request(b"1" * 10_000), 400),
    (request(b"\x1f\x8b\x08\x00garbage", headers={b"content-encoding": b"gzip"}), 415),
    (request({"inputs": [{"name": "X" * 100_000}]}), 400),
    (
        request({"inputs": [{"name": f"X{n}", "shape": [0, 1], "datatype": "BYTES", "data": []} for n in range(9999)]}),
        400,
    ),
    (request({"inputs": [{**GOOD["inputs"][0], "data": [{"a": [[]]}]}]}), 400),
    (request({"inputs": [{**GOOD["inputs"][0], "shape": [10**4000, 1]}]}), 400),
    (request(document(*["\udc00"])), 400),
    (request(path="/" + "x" * 10_000), 404),
    (request(method="DELETE"), 405),
]


def test_a_callers_mistake_is_4xx_with_a_line_of_log_and_a_short_answer() -> None:
    """500 would be tried again by the client, and would sound alarms."""

    def refuse_surrogates(rows: Rows) -> Sequence[Any]:
        return [Refusal("is not UTF-8 in text") for _ in rows]

    answered = Answered(*(asked for asked, _ in HOSTILE), encode=refuse_surrogates)
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


def test_a_score_that_json_does_not_have_is_an_error_of_the_model() -> None:
    answered = Answered(request(), predict=lambda rows: [{"LABEL": "buy", "SCORE": float("nan")}])
    status, body = answered.only
    assert (status, body["error"].partition("JSON")[0]) == (
        500,
        "The model failed: BadAnswer: the model's answer is not ",
    )


def test_an_answer_over_sagemakers_limit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kserve, "LONGEST_ANSWER", 50)
    status, body = Answered(request()).only
    assert status == 500
    assert body["error"].startswith("The model failed: BadAnswer: the model's answer has ")


def test_answers_that_are_not_one_for_each_row_are_given_to_no_caller() -> None:
    assert Answered(request(), predict=lambda rows: []).only == (
        500,
        {"error": "The model failed: RuntimeError: the model gave 0 answers to 1 rows"},
    )


def test_health_is_what_the_cores_say_and_life_is_not() -> None:
    asked = [request(b"", path, "GET") for path in ("/ping", "/v2/health/ready", "/v2/models/intent/ready")]
    well = Answered(*asked)
    ill = Answered(*asked, request(b"", "/v2/health/live", "GET"), unwell="Worker 3 has not answered for 20 s.")
    assert [answer.status for answer in well.answers] == [200, 200, 200]
    assert [answer.status for answer in ill.answers] == [503, 503, 503, 200]
    assert json.loads(ill.answers[0].body) == {"error": "Worker 3 has not answered for 20 s."}
    assert ill.answers[0].headers == {"Retry-After": "1"}


def test_a_caller_that_is_wrong_all_the_time_does_not_fill_the_log() -> None:
    lines: list[str] = []
    now = 0.0
    errors = Errors(lines.append, lambda: now)
    for _ in range(5000):
        errors.answer(400, "no")
    assert lines == ['400 "no"'] * MOST_LINES
    now = LINES_PERIOD_S
    errors.answer(400, "line\nbreak")
    assert lines[MOST_LINES:] == [f"{5000 - MOST_LINES} more requests failed since", '400 "line\\nbreak"']


def test_a_large_body_is_read_beside_the_event_loop_and_a_small_one_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    parse = kserve.parse

    def parse_and_tell(*arguments: Any) -> kserve.Request:
        threads.append(threading.current_thread().name)
        return parse(*arguments)

    monkeypatch.setattr(kserve, "parse", parse_and_tell)
    large = document("red") + b" " * application.READ_AT_ONCE
    answered = Answered(request(), request(large))
    assert [answer.status for answer in answered.answers] == [200, 200]
    assert threads == ["MainThread", "read_0"]


def test_a_full_queue_is_503_and_says_when_to_come_again() -> None:
    """The model stands still while more callers come than will be answered soon."""
    entered, go = threading.Event(), threading.Event()

    def wait(rows: Rows) -> Sequence[Any]:
        entered.set()
        go.wait(60)
        return answer_all(rows)

    async def crowd() -> list[Answer]:
        batcher = Batcher(StubSteps(wait), SERVING, 1, CoreWatch(time.monotonic))
        batcher.start()
        model = Model(batcher, list, CLASSIFICATION, SERVING, Record(), Errors(lambda line: None), str)
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
    assert json.loads(refused.body) == {"error": "512 rows wait to be answered; at most 512 may."}
    assert refused.headers == {"Retry-After": "1"}
