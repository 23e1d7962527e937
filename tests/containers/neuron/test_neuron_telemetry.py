"""The Neuron server's metrics: requests of the task and a sample of latencies, if a stack requests them."""

import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containers.neuron.telemetry import RequestRecord, TaskReports, sample
from tests.containers.neuron.neuron_server import END_S, SERVING, make_onnx, running

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
