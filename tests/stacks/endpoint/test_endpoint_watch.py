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

AVERAGE = {"Statistic": "Average"}
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


def test_callers_faults_do_not_page(measured: Synthesis) -> None:
    rule = measured.only("AWS::CloudWatch::CompositeAlarm")["AlarmRule"]["Fn::Join"][1]
    paging = {part["Fn::GetAtt"][0] for part in rule if isinstance(part, dict)}
    found = measured.of_type("AWS::CloudWatch::Alarm")
    silent = {alarm["Properties"]["MetricName"] for name, alarm in found.items() if name not in paging}
    assert silent == {"Invocation4XXErrors"}


def test_an_updates_bake_is_no_shorter_than_its_alarms_need() -> None:
    shortest = Canary.model_json_schema()["properties"]["bake_s"]["minimum"]
    assert shortest >= EVALUATION_PERIODS * 60


def test_the_dashboard_begins_with_the_alarms_and_five_numbers(measured: Synthesis) -> None:
    status, now, *_ = widgets(measured)
    assert status["type"] == "alarm"
    assert len(status["properties"]["alarms"]) == 7
    labels = [metric[-1]["label"] for metric in now["properties"]["metrics"] if metric[-1].get("visible") is not False]
    assert labels == [
        "P99 model latency, ms (objective 50)",
        "Invocations per minute",
        "Share of 5xx",
        "Instances",
        "USD per day",
    ]


def test_the_dashboard_shows_latency_against_the_objective(measured: Synthesis) -> None:
    latency = graphs(measured)["Model latency (µs)"]
    assert [metric[-1]["stat"] for metric in latency["metrics"]] == ["p50", "p90", "p99"]
    (objective,) = latency["annotations"]["horizontal"]
    assert (objective["label"], objective["value"]) == ("Objective, P99", 50_000)


def test_the_dashboard_shows_load_against_capacity_and_target(measured: Synthesis) -> None:
    lines = graphs(measured)["Invocations per minute and instance"]["annotations"]["horizontal"]
    assert {line["label"]: line["value"] for line in lines} == {
        "Measured capacity": 6421.0,
        "Autoscaling's target": 3210.5,
    }


def test_the_cost_per_day_stands_beside_the_recommendations_estimate(measured: Synthesis) -> None:
    cost = graphs(measured)["USD per day at the present size (left), instances (right)"]
    (estimate,) = cost["annotations"]["horizontal"]
    assert (estimate["label"], estimate["value"]) == ("The recommendation's estimate, at the peak: 29.38", 1.224 * 24)
    assert {"expression": "instances * 1.224 / 3 * 24", "label": "USD per day"}.items() <= cost["metrics"][0][0].items()


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
