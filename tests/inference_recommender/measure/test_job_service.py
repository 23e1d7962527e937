"""The wait for a job and its stop, its time series from CloudWatch, and AWS's own scaling policy."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aws_api.errors import AwsRefused
from aws_api.sagemaker import FINER_METRICS_TAG, SageMakerAccount
from aws_api.service_model import problems
from inference_recommender.capacity.time_series import Series
from inference_recommender.measure.job_service import (
    job_series,
    quantiles_ms,
    read_advice,
    scaling_advice,
    series,
    stop_and_wait,
)
from inference_recommender.report.candidates import advice_text
from tests.builders import known
from tests.inference_recommender.api import FakeService, description, endpoint, recommendation
from workloads import load_workload
from workloads.recommendation import ScalingAdvice

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LATER = START + timedelta(seconds=5)


@pytest.mark.parametrize(("then", "ends"), [("COMPLETED", True), ("IN_PROGRESS", False)])
def test_a_job_that_ended_before_the_stop_is_no_error(then: str, ends: bool) -> None:
    service = FakeService([description("IN_PROGRESS"), description(then)])
    refusal = AwsRefused("StopInferenceRecommendationsJob", "ValidationException", "It cannot be stopped.")
    service.troubles = {"stop_job": [refusal]}
    if ends:
        assert stop_and_wait(service, "job-1", lambda seconds: None)["Status"] == "COMPLETED"
    else:
        with pytest.raises(AwsRefused, match="It cannot be stopped"):
            stop_and_wait(service, "job-1", lambda seconds: None)


class CloudWatch(SageMakerAccount):
    """Has two values per query, at the periods that it publishes. Every request is valid by botocore's model."""

    job_tags: Mapping[str, str] = {FINER_METRICS_TAG: "true"}

    def __init__(self, *periods: int) -> None:
        """Opens no session."""
        self.published = periods
        self.queries: list[Mapping[str, Any]] = []

    def tags(self, arn: str) -> dict[str, str]:
        return dict(self.job_tags)

    def pages(self, service: str, operation: str, key: str, **arguments: Any) -> list[Any]:
        assert problems("cloudwatch", "GetMetricData", arguments) == []
        self.queries += arguments["MetricDataQueries"]
        return [
            {"Id": query["Id"], "Timestamps": [LATER, START], "Values": [20.0, 10.0]}
            for query in arguments["MetricDataQueries"]
            if query["MetricStat"]["Period"] in self.published
        ]


def fetched(account: CloudWatch, seconds: int = 120) -> Series:
    described = description(
        CreationTime=START,
        CompletionTime=START + timedelta(seconds=seconds),
        InferenceRecommendations=[recommendation(EndpointConfiguration=endpoint("e"))],
    )
    return job_series(account, described, [], None, "p99.9")["e"]


def test_points_are_sorted_and_the_variants_model_latency_is_converted_from_microseconds() -> None:
    account = CloudWatch(5, 86_400)
    found = fetched(account)
    assert (found.period_s, found.seconds, found.invocations) == (5, (0.0, 5.0), (10.0, 20.0))
    assert found.latency_ms["p99"] == (10.0, 20.0)
    assert found.model_latency_ms == {"p99.9": (0.01, 0.02)}
    (query,) = [query["MetricStat"] for query in account.queries if query["Id"] == "model"]
    dimensions = [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "sm-epc-variant-1"}]
    metric = {"Namespace": "AWS/SageMaker", "MetricName": "ModelLatency", "Dimensions": dimensions}
    assert query == {"Metric": metric, "Period": 5, "Stat": "p99.9"}


@pytest.mark.parametrize(
    ("published", "seconds", "queried"),
    [(1, 20, {1, 86_400}), (60, 120, {5, 60, 86_400}), (60, 7200, {60, 86_400})],
)
def test_the_finest_period_that_the_service_publishes_is_read(published: int, seconds: int, queried: set[int]) -> None:
    account = CloudWatch(published, 86_400)
    assert fetched(account, seconds).period_s == published
    assert {query["MetricStat"]["Period"] for query in account.queries} == queried


class OfSageMaker(CloudWatch):
    """Has a datum each minute of 6,000 invocations, at whatever period: the sum is at the minute's first second."""

    job_tags: Mapping[str, str] = {}

    def pages(self, service: str, operation: str, key: str, **arguments: Any) -> list[Any]:
        self.queries += arguments["MetricDataQueries"]
        times = [START + timedelta(minutes=minute) for minute in range(13)]
        return [{"Id": query["Id"], "Timestamps": times, "Values": [6000.0] * 13} for query in self.queries]


@pytest.mark.parametrize("minutes", [1, 13, 16])
def test_the_metrics_of_sagemaker_give_the_rate_of_a_job_of_any_length(minutes: int) -> None:
    account = OfSageMaker()
    found = fetched(account, 60 * minutes)
    assert set(found.invocations_per_minute()) == {6000.0}
    assert {query["MetricStat"]["Period"] % 60 for query in account.queries} == {0}


def test_values_that_are_not_published_are_unknown() -> None:
    nothing = fetched(CloudWatch())
    assert (nothing.seconds, nothing.model_latency_ms, nothing.model_latency_quantiles_ms) == ((), {}, {})
    found = series({"invocations": {START: 1.0, LATER: 2.0}, "p99": {LATER: 9.0}}, 5, "p99")
    assert (found.latency_ms["p99"], found.users) == ((None, 9.0), (None, None))


def test_quantiles_are_of_the_fuller_day_and_in_milliseconds() -> None:
    yesterday = START - timedelta(days=1)
    found = quantiles_ms({"q0": {yesterday: 10.0, START: 5000.0}, "q5": {yesterday: 1.0, START: 42_000.0}})
    assert found == {"p50": 42.0}


POLICY = {
    "MetricSpecification": {"Predefined": {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}},
    "TargetValue": 6000.0,
}
ANSWER = {
    "InferenceRecommendationsJobName": "job-1",
    "Metric": {"InvocationsPerInstance": 12_000, "ModelLatency": 21},
    "DynamicScalingConfiguration": {
        "MinCapacity": 2,
        "MaxCapacity": 20,
        "ScaleInCooldown": 300,
        "ScalingPolicies": [{"TargetTracking": POLICY}],
    },
}


class Advisor(FakeService):
    def __init__(self, answer: Mapping[str, Any] | str) -> None:
        """`answer` is a response, or the code of a refusal."""
        super().__init__([description()])
        self.answer = answer
        self.requests: list[Mapping[str, Any]] = []

    def scaling_configuration(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        if isinstance(self.answer, str):
            raise AwsRefused("GetScalingConfigurationRecommendation", self.answer, "not you.")
        return dict(self.answer)

    def advice(self, endpoint: str = "sm-epc-1") -> ScalingAdvice | None:
        return scaling_advice(self, description(), endpoint, load_workload("spellcheck").workload.latency_objective)


def test_awss_policy_is_requested_for_the_objectives_trough_and_peak() -> None:
    service = Advisor(ANSWER)
    found = known(service.advice())
    (request,) = service.requests
    assert problems("sagemaker", "GetScalingConfigurationRecommendation", request) == []
    assert request["RecommendationId"] == "job-1/1"
    assert request["ScalingPolicyObjective"] == {"MinInvocationsPerMinute": 24_000, "MaxInvocationsPerMinute": 240_000}
    assert (found.invocations_per_instance, found.model_latency) == (12_000, 21)
    assert advice_text(found) == (
        "AWS's own scaling policy, without a latency objective: 2 to 20 instances, target 6,000 "
        "(SageMakerVariantInvocationsPerInstance)."
    )
    assert service.advice("another") is None
    assert len(service.requests) == 1


def test_without_a_policy_there_is_a_reason_or_no_advice() -> None:
    refused = known(Advisor("AccessDeniedException").advice())
    assert advice_text(refused) == (
        "AWS returned no scaling policy: AWS refused GetScalingConfigurationRecommendation: "
        "AccessDeniedException: not you."
    )
    assert Advisor("NotImplemented").advice() is None
    assert read_advice({}).reason == "The service answered without a policy."
