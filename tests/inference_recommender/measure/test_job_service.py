"""The wait for a job, its stop, and its time series from CloudWatch."""

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
    series,
    stop_and_wait,
)
from tests.inference_recommender.api import FakeService, description, endpoint, recommendation

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
