"""CloudWatch queries, valid by botocore's model, and the columns made of what they return."""

from datetime import UTC, datetime, timedelta
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.capacity.time_series import Series
from inference_recommender.measure.job_metrics import (
    job_series,
    quantile_queries,
    quantiles_ms,
    series,
    time_series_queries,
)
from tests.inference_recommender.api import description, endpoint, recommendation

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
END = START + timedelta(minutes=2)


class Account(SageMakerAccount):
    """Has a CloudWatch with two values per query, at the periods that it publishes."""

    def __init__(self, *periods: int) -> None:
        """Opens no session."""
        self.published = periods
        self.periods: set[int] = set()

    def pages(self, service: str, operation: str, key: str, **arguments: Any) -> list[Any]:
        queries = arguments["MetricDataQueries"]
        self.periods |= {query["MetricStat"]["Period"] for query in queries}
        later = START + timedelta(seconds=5)
        return [
            {"Id": query["Id"], "Timestamps": [later, START], "Values": [20.0, 10.0]}
            for query in queries
            if query["MetricStat"]["Period"] in self.published
        ]


def fetched(account: Account, duration: timedelta = END - START) -> Series:
    described = description(
        CreationTime=START,
        CompletionTime=START + duration,
        InferenceRecommendations=[recommendation(EndpointConfiguration=endpoint("e"))],
    )
    return job_series(account, described, [], None, "p99")["e"]


def test_botocore_accepts_the_queries() -> None:
    service = botocore.session.get_session().get_service_model("cloudwatch")
    shape = service.operation_model("GetMetricData").input_shape
    assert shape is not None
    for queries in (time_series_queries("job-1", "e", 5, ("v", "p99.9")), quantile_queries("e", "v")):
        request = {"MetricDataQueries": queries, "StartTime": START, "EndTime": END}
        assert ParamValidator().validate(request, shape).generate_report() == ""


def test_points_are_sorted_and_model_latency_is_converted_from_microseconds() -> None:
    found = fetched(Account(5, 86_400))
    assert (found.period_s, found.seconds, found.invocations) == (5, (0.0, 5.0), (10.0, 20.0))
    assert found.latency_ms["p99"] == (10.0, 20.0)
    assert found.model_latency_ms == {"p99": (0.01, 0.02)}


def test_the_model_latency_of_each_point_is_the_variants_at_the_objectives_percentile() -> None:
    (*_, query) = time_series_queries("job-1", "e", 60, ("v", "p99.9"))
    assert query["MetricStat"] == {
        "Metric": {
            "Namespace": "AWS/SageMaker",
            "MetricName": "ModelLatency",
            "Dimensions": [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "v"}],
        },
        "Period": 60,
        "Stat": "p99.9",
    }


@pytest.mark.parametrize(
    ("published", "seconds", "queried"),
    [(1, 20, {1, 86_400}), (60, 120, {5, 60, 86_400}), (60, 7200, {60, 86_400})],
)
def test_the_finest_period_that_the_service_publishes_is_read(published: int, seconds: int, queried: set[int]) -> None:
    account = Account(published, 86_400)
    assert fetched(account, timedelta(seconds=seconds)).period_s == published
    assert account.periods == queried


def test_without_published_values_the_series_is_empty() -> None:
    found = fetched(Account())
    assert (found.seconds, found.model_latency_ms, found.model_latency_quantiles_ms) == ((), {}, {})


def test_a_point_that_one_metric_lacks_is_unknown() -> None:
    later = START + timedelta(seconds=5)
    found = series({"invocations": {START: 1.0, later: 2.0}, "p99": {later: 9.0}}, 5)
    assert found.latency_ms["p99"] == (None, 9.0)
    assert found.users == (None, None)


def test_quantiles_are_of_the_fuller_day_and_in_milliseconds() -> None:
    yesterday = START - timedelta(days=1)
    found = quantiles_ms({"q0": {yesterday: 10.0, START: 5000.0}, "q5": {yesterday: 1.0, START: 42_000.0}})
    assert found == {"p50": 42.0}
