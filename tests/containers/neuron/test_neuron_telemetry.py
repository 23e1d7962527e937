"""What the Neuron server tells CloudWatch: requests of the whole task, a fair sample of latencies, only if asked."""

import json
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from containers.errors import ContainerError
from containers.neuron.telemetry import Record, Reports, Telemetry, sample
from tests.containers.neuron.neuron_server import SERVING, make_onnx, running

ASKED = {"METRICS_WORKLOAD": "query_intent", "METRICS_STACK": "QueryIntentStack"}


def test_a_sample_keeps_the_percentiles() -> None:
    latencies = [random.Random(1).lognormvariate(1, 0.8) for _ in range(120_000)]
    ordered, sampled = sorted(latencies), sample(latencies, 100)
    assert len(sampled) == 100
    assert sampled[49] <= ordered[60_000] <= sampled[50]
    assert sampled[98] <= ordered[118_800] <= sampled[99]


def test_few_values_are_all_kept() -> None:
    assert sample([3.0, 1.0, 2.0], 100) == [1.0, 2.0, 3.0]


def test_a_workers_record_is_empty_once_taken() -> None:
    record = Record()
    for latency in (2.0, 1.00049):
        record.add(latency)
    record.add_error()
    assert record.take() == {"requests": 3, "errors": 1, "latencies_ms": [1.0, 2.0]}
    assert record.take() == {"requests": 0, "errors": 0, "latencies_ms": []}


def test_the_requests_of_all_workers_are_one_number_and_a_quiet_minute_is_told_too() -> None:
    told: list[str] = []
    reports = Reports(Telemetry.read(ASKED), told.append)
    reports.hear({"requests": 3, "errors": 0, "latencies_ms": [1.0, 2.0, 3.0]})
    reports.hear({"requests": 4, "errors": 1, "latencies_ms": [9.0]})
    reports.tell(at_s=60)
    reports.tell(at_s=120)
    values = [{key: each for key, each in json.loads(line).items() if key != "_aws"} for line in told]
    dimensions = {"Workload": "query_intent", "Stack": "QueryIntentStack"}
    assert values == [
        {**dimensions, "Invocations": 7},
        {**dimensions, "ServerErrors": 1},
        {**dimensions, "ResponseTime": [1.0, 2.0, 3.0]},
        {**dimensions, "ResponseTime": [9.0]},
        {**dimensions, "Invocations": 0},
        {**dimensions, "ServerErrors": 0},
    ]


def test_a_period_that_is_none_is_refused() -> None:
    for text in ("0", "-1", "soon", "nan"):
        with pytest.raises(ContainerError) as refusal:
            Telemetry.read({"METRICS_PERIOD_S": text})
        assert str(refusal.value) == f"METRICS_PERIOD_S: got '{text}'. Allowed: seconds, more than 0."


@pytest.mark.integration
def test_a_running_server_counts_the_requests_of_all_its_workers(tmp_path: Path) -> None:
    folder = make_onnx(tmp_path / "model", replace(SERVING, model_instances=2))
    log = tmp_path / "server.log"
    with running(folder, log, METRICS_PERIOD_S="0.2", **ASKED) as server:
        for _ in range(30):
            assert server.infer("red shoes")[0] == 200
        assert server.infer("a", path="/nowhere")[0] == 404
        time.sleep(0.7)
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        assert sum(line.get("Invocations", 0) for line in lines) == 30
        latencies = [latency for line in lines for latency in line.get("ResponseTime", [])]
        assert len(latencies) == 30
        assert all(0 < latency < 5000 for latency in latencies)


@pytest.mark.integration
def test_nobody_asked_nothing_is_told(tmp_path: Path) -> None:
    folder = make_onnx(tmp_path / "model", SERVING)
    log = tmp_path / "server.log"
    with running(folder, log, METRICS_PERIOD_S="0.05") as server:
        server.infer("red shoes")
        time.sleep(0.3)
    assert [line for line in log.read_text().splitlines() if line.startswith("{")] == []
