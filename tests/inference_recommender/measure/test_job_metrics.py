"""CloudWatch queries, valid by botocore's model, and the columns made of what they return."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import botocore.session
from botocore.validate import ParamValidator

from inference_recommender.measure.aws import (
    fetch_series,
    quantile_queries,
    quantiles_ms,
    series,
    time_series_queries,
)

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
END = START + timedelta(minutes=2)


class FakeCloudWatch:
    """Knows one value per query id, at the periods it publishes."""

    def __init__(self, periods: tuple[int, ...]) -> None:
        self.periods = periods
        self.asked: list[dict[str, Any]] = []

    def get_metric_data(self, **request: Any) -> Mapping[str, Any]:
        self.asked.append(request)
        queries = request["MetricDataQueries"]
        first = "NextToken" not in request
        shown = [query for query in (queries[:3] if first else queries[3:]) if self._publishes(query)]
        results = [
            {"Id": query["Id"], "Timestamps": [START + timedelta(seconds=5), START], "Values": [20.0, 10.0]}
            for query in shown
        ]
        return {"MetricDataResults": results, **({"NextToken": "more"} if first else {})}

    def _publishes(self, query: Mapping[str, Any]) -> bool:
        return query["MetricStat"]["Period"] in self.periods


def test_botocore_accepts_the_queries() -> None:
    service = botocore.session.get_session().get_service_model("cloudwatch")
    shape = service.operation_model("GetMetricData").input_shape
    assert shape is not None
    for queries in (time_series_queries("job-1", "e", 5, ("v", "p99.9")), quantile_queries("e", "v")):
        request = {"MetricDataQueries": queries, "StartTime": START, "EndTime": END}
        assert ParamValidator().validate(request, shape).generate_report() == ""


def test_pages_are_joined_and_points_sorted() -> None:
    found = fetch_series(FakeCloudWatch((5, 86_400)), "job-1", "e", "v", START, END, "p99")
    assert found.period_s == 5
    assert found.seconds == (0.0, 5.0)
    assert found.invocations == (10.0, 20.0)
    assert found.latency_ms["p99"] == (10.0, 20.0)
    assert found.model_latency_ms == {"p99": (0.01, 0.02)}, "which CloudWatch has in microseconds"


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


def test_a_job_of_seconds_is_asked_by_the_second() -> None:
    found = fetch_series(FakeCloudWatch((1, 86_400)), "job-1", "e", "v", START, START + timedelta(seconds=20), "p99")
    assert found.period_s == 1


def test_a_service_that_publishes_by_the_minute_is_asked_by_the_minute() -> None:
    found = fetch_series(FakeCloudWatch((60, 86_400)), "job-1", "e", "v", START, END, "p99")
    assert (found.period_s, found.seconds) == (60, (0.0, 5.0))


def test_a_long_job_is_asked_by_the_minute_at_once() -> None:
    client = FakeCloudWatch((60,))
    fetch_series(client, "job-1", "e", "v", START, START + timedelta(hours=2), "p99")
    periods = {query["MetricStat"]["Period"] for request in client.asked for query in request["MetricDataQueries"]}
    assert periods == {60, 86_400}


def test_nothing_published_is_an_empty_series() -> None:
    found = fetch_series(FakeCloudWatch(()), "job-1", "e", "v", START, END, "p99")
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
