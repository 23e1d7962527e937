"""The alarms and the dashboard of an endpoint. Every limit is the objective's or the recommendation's."""

import json
from pathlib import Path
from typing import Any

from containers import embedded_metrics
from containers.triton.server_times import TritonCounters
from stacks.paging import EVALUATION_PERIODS
from tests.stacks.endpoint.test_endpoint_options import OWN_NEURON
from tests.stacks.miniature import Repository, Synthesis, candidate, make_repository
from tests.stacks.templates import filled
from workloads.hosting import Canary

ENDPOINT = [{"Name": "EndpointName", "Value": "SpellcheckStack"}, {"Name": "VariantName", "Value": "AllTraffic"}]


def test_the_limits_move_with_the_objective(repository: Repository) -> None:
    file = repository.workload_file
    text = file.read_text("utf-8").replace("model_latency_ms = 50.0", "model_latency_ms = 80.0\nmax_error_rate = 0.02")
    file.write_text(text.replace('percentile = "P99"', 'percentile = "P95"'), "utf-8")
    limits = {
        alarm["MetricName"]: (alarm.get("ExtendedStatistic"), alarm["Threshold"])
        for alarm in alarms(repository.synthesise())
    }
    assert limits == {
        "ModelLatency": ("p95", 80_000),
        "OverheadLatency": (None, 20_000),
        "ClientLatency": ("p95", 100),
        "Invocation4XXErrors": (None, 0.02),
        "Invocation5XXErrors": (None, 0.02),
        "InvocationModelErrors": (None, 0.02),
    }


def test_saturation_is_watched_only_where_a_capacity_was_measured(unmeasured: Synthesis) -> None:
    assert "InvocationsPerInstance" not in {alarm["MetricName"] for alarm in alarms(unmeasured)}


def test_4xx_errors_do_not_page(measured: Synthesis) -> None:
    rule = measured.only("AWS::CloudWatch::CompositeAlarm")["AlarmRule"]["Fn::Join"][1]
    paging = {part["Fn::GetAtt"][0] for part in rule if isinstance(part, dict)}
    found = measured.of_type("AWS::CloudWatch::Alarm")
    silent = {alarm["Properties"]["MetricName"] for name, alarm in found.items() if name not in paging}
    assert silent == {"Invocation4XXErrors"}


def test_an_updates_bake_time_covers_its_alarms() -> None:
    shortest = Canary.model_json_schema()["properties"]["bake_s"]["minimum"]
    assert shortest >= EVALUATION_PERIODS * 60


def test_an_unknown_cost_says_why(repository: Repository) -> None:
    reason = "prices.json has none for ml.c5.2xlarge."
    repository.recommend(candidate(cost_per_hour_usd=None, cost_reason=reason))
    assert f"**Cost per day** is not known: {reason}" in texts(repository.synthesise())


def test_the_neuron_servers_own_latency_stands_beside_model_latency(tmp_path: Path) -> None:
    """CloudWatch reads it from the container's log; its dimensions are those with which the server prints it."""
    repository = make_repository(tmp_path, "question_answering")
    repository.host("inf1-data-parallel", image_uri=OWN_NEURON)
    synthesis = repository.synthesise()
    shown = graphs(synthesis)["In the server: waiting and computing (ms)"]
    printed = embedded_metrics.dimensions(synthesis.only("AWS::SageMaker::Model")["PrimaryContainer"]["Environment"])
    assert printed == {"Workload": "question_answering", "Stack": "QuestionAnsweringStack"}
    namespace, name, *named = shown["metrics"][0][:-1]
    assert (namespace, name) == (embedded_metrics.NAMESPACE, "ResponseTime")
    assert dict(zip(named[::2], named[1::2], strict=True)) == printed
    assert {metric[-1]["stat"] for metric in shown["metrics"]} >= {"p50", "p90", "p99"}
    assert not [text for text in texts(synthesis) if "Time in the server" in text]


def test_tritons_waiting_and_computing_stand_beside_model_latency(measured: Synthesis) -> None:
    """The names and dimensions are those that the image's server_times prints."""
    environment = measured.only("AWS::SageMaker::Model")["PrimaryContainer"]["Environment"]
    printed = {"Workload": environment["METRICS_WORKLOAD"], "Stack": environment["METRICS_STACK"]}
    counters = TritonCounters(requests=1).means_since(TritonCounters())
    shown = graphs(measured)["In Triton: waiting and computing (ms, mean)"]["metrics"]
    assert [metric[:2] for metric in shown] == [[embedded_metrics.NAMESPACE, each.name] for each in counters]
    for _, _, *named, rendering in shown:
        assert dict(zip(named[::2], named[1::2], strict=True)) == printed
        assert rendering.get("stat", "Average") == "Average"
    assert texts(measured) == []


def texts(synthesis: Synthesis) -> list[str]:
    return [item["properties"]["markdown"] for item in widgets(synthesis) if item["type"] == "text"]


def test_a_gpus_use_is_shown_where_there_is_one(repository: Repository) -> None:
    repository.host("tensorrt")
    assert "GPU and its memory (100 % each), CPU (100 % per core)" in graphs(repository.synthesise())


def alarms(synthesis: Synthesis) -> list[dict[str, Any]]:
    return [item["Properties"] for item in synthesis.of_type("AWS::CloudWatch::Alarm").values()]


def widgets(synthesis: Synthesis) -> list[dict[str, Any]]:
    return list(json.loads(filled(synthesis.only("AWS::CloudWatch::Dashboard")["DashboardBody"]))["widgets"])


def graphs(synthesis: Synthesis) -> dict[str, Any]:
    shown = [item["properties"] for item in widgets(synthesis) if item["type"] == "metric"]
    return {item["title"]: item for item in shown if "title" in item}
