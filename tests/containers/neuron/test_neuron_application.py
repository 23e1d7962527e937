"""The routes of the Neuron server: status codes, the log of errors, large bodies, and metrics."""

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containers.encoder.row import Refusal
from containers.neuron import application, kserve
from containers.neuron.application import LINES_PERIOD_S, MAX_LINES, Encode, ErrorResponses, InferenceRoutes
from containers.neuron.batching import QUEUED_BATCHES, Batcher, CoreWatch, Rows
from containers.neuron.http_server import HttpRequest, HttpResponse
from containers.neuron.telemetry import RequestRecord, TaskReports, sample
from tests.containers.encoder.encoder_miniature import CLASSIFICATION
from tests.containers.neuron.neuron_server import END_S, SERVING, document, make_onnx, running
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


ASKED = {"METRICS_WORKLOAD": "query_intent", "METRICS_STACK": "QueryIntentStack"}


def test_a_sample_keeps_the_percentiles() -> None:
    drawn = random.Random(1)
    values = [drawn.lognormvariate(1, 0.8) for _ in range(12_000)]
    ordered, sampled = sorted(values), sample(values, 100)
    assert len(sampled) == 100
    assert sampled[49] <= ordered[6_000] <= sampled[50]
    assert sampled[98] <= ordered[11_880] <= sampled[99]


def test_a_workers_record_is_empty_once_taken() -> None:
    record = RequestRecord()
    for latency in (2.0, 1.00049):
        record.add(latency)
    record.add_error()
    assert record.take() == {"requests": 3, "errors": 1, "latencies_ms": [1.0, 2.0]}
    assert record.take() == {"requests": 0, "errors": 0, "latencies_ms": []}


def test_the_requests_of_all_workers_are_one_number_also_when_it_is_0() -> None:
    lines: list[str] = []
    reports = TaskReports(ASKED, lines.append)
    reports.add({"requests": 3, "errors": 0, "latencies_ms": [1.0, 2.0, 3.0]})
    reports.add({"requests": 4, "errors": 1, "latencies_ms": [9.0]})
    reports.print(at_s=60)
    reports.print(at_s=120)
    values = [{key: each for key, each in json.loads(line).items() if key != "_aws"} for line in lines]
    dimensions = {"Workload": "query_intent", "Stack": "QueryIntentStack"}
    metrics = [{"Name": "Invocations", "Unit": "Count"}]
    names = {"Namespace": "TransformersInProduction", "Dimensions": [["Workload", "Stack"]]}
    directive = {**names, "Metrics": metrics}
    assert json.loads(lines[0])["_aws"] == {"Timestamp": 60_000, "CloudWatchMetrics": [directive]}
    assert values == [
        {**dimensions, "Invocations": 7},
        {**dimensions, "ServerErrors": 1},
        {**dimensions, "ResponseTime": [1.0, 2.0, 3.0]},
        {**dimensions, "ResponseTime": [9.0]},
        {**dimensions, "Invocations": 0},
        {**dimensions, "ServerErrors": 0},
    ]


@pytest.mark.integration
def test_a_running_server_counts_the_requests_of_all_its_workers(tmp_path: Path) -> None:
    folder = make_onnx(tmp_path / "model", replace(SERVING, model_instances=2))
    log = tmp_path / "server.log"
    with running(folder, log, METRICS_PERIOD_S="0.2", **ASKED) as server:
        for _ in range(30):
            assert server.infer("red shoes")[0] == 200
        assert server.infer("a", path="/nowhere")[0] == 404
        give_up = time.monotonic() + END_S
        while len(latencies(log)) < 30:
            assert time.monotonic() < give_up, log.read_text()
            time.sleep(0.05)
        assert sum(line.get("Invocations", 0) for line in metrics(log)) == 30
        assert len(latencies(log)) == 30
        assert all(latency > 0 for latency in latencies(log))


def metrics(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]


def latencies(log: Path) -> list[float]:
    return [latency for line in metrics(log) for latency in line.get("ResponseTime", [])]
