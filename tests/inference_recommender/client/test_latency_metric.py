"""The client's latency in CloudWatch, published in the background and on close."""

import threading
from collections import Counter
from collections.abc import Mapping, Set
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.session import get_session
from botocore.validate import ParamValidator
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.client import LatencyMetric
from inference_recommender.client.latency_metric import DATA_PER_REQUEST, VALUES_PER_DATUM, bucket, requests
from tests.builders import message_of

NOON_S = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
SHAPE = get_session().get_service_model("cloudwatch").shape_for("PutMetricDataInput")


class Watch:
    """A CloudWatch client that keeps what it is sent; the calls of the numbers in `failing` fail."""

    def __init__(self, failing: Set[int] = frozenset()) -> None:
        self._failing = failing
        self._calls = 0
        self.sent: list[Mapping[str, Any]] = []
        self.came = threading.Event()

    def put_metric_data(self, **request: Any) -> None:
        assert ParamValidator().validate(request, SHAPE).generate_report() == ""
        self._calls += 1
        if self._calls in self._failing:
            raise ConnectionError("no network")
        self.sent.append(request)
        self.came.set()

    def total(self) -> int:
        return int(sum(sum(datum["Counts"]) for request in self.sent for datum in request["MetricData"]))


def test_a_minutes_latencies_become_one_datum_of_values_and_counts() -> None:
    watch = Watch()
    with LatencyMetric("spellcheck", "SpellcheckStack", client=watch, clock_s=lambda: NOON_S + 59) as metric:
        for latency in (12.34, 12.341, 9.0):
            metric.record(latency)
    assert watch.sent == [
        {
            "Namespace": "TransformersInProduction",
            "MetricData": [
                {
                    "MetricName": "ClientLatency",
                    "Dimensions": [
                        {"Name": "Workload", "Value": "spellcheck"},
                        {"Name": "Stack", "Value": "SpellcheckStack"},
                    ],
                    "Timestamp": datetime(2026, 11, 21, 12, tzinfo=UTC),
                    "Values": [9.0, 12.3],
                    "Counts": [1.0, 2.0],
                    "Unit": "Milliseconds",
                }
            ],
        }
    ]


@given(
    latencies=st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 7_200)), max_size=2_000),
)
def test_every_latency_is_published_once_within_the_services_limits(latencies: list[tuple[float, float]]) -> None:
    counts = Counter(bucket(latency, NOON_S + offset) for latency, offset in latencies)
    total = 0
    for request in requests({"Workload": "w", "Stack": "S"}, counts):
        assert len(request["MetricData"]) <= DATA_PER_REQUEST
        for datum in request["MetricData"]:
            assert 1 <= len(datum["Values"]) == len(datum["Counts"]) <= VALUES_PER_DATUM
            total += sum(datum["Counts"])
    assert total == len(latencies)


def test_it_is_published_in_the_background() -> None:
    watch = Watch()
    with LatencyMetric("w", "S", client=watch, flush_every_s=0.01) as metric:
        metric.record(5)
        assert watch.came.wait(5)
    assert watch.total() == 1


def test_unsent_data_is_logged_and_sent_with_the_next(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch({1})
    metric = LatencyMetric("w", "S", client=watch, clock_s=lambda: NOON_S)
    metric.record(5)
    metric.flush()
    assert (watch.total(), [record.message for record in caplog.records]) == (
        0,
        ["The client latency of w could not be published: no network"],
    )
    metric.record(5)
    metric.close()
    assert watch.total() == 2


def test_data_sent_before_a_failure_is_not_sent_twice() -> None:
    watch = Watch({2})
    now = [NOON_S]
    metric = LatencyMetric("w", "S", client=watch, clock_s=lambda: now[0])
    for minute in range(DATA_PER_REQUEST + 5):
        now[0] = NOON_S + 60 * minute
        metric.record(5)
    metric.flush()
    assert watch.total() == DATA_PER_REQUEST
    metric.close()
    assert watch.total() == DATA_PER_REQUEST + 5


def test_data_that_is_unsent_for_an_hour_is_dropped() -> None:
    watch = Watch({1})
    now = [NOON_S]
    metric = LatencyMetric("w", "S", client=watch, clock_s=lambda: now[0])
    metric.record(5)
    now[0] += 3_700
    metric.flush()
    metric.close()
    assert watch.total() == 0


def test_a_cloudwatch_that_cannot_be_reached_fails_no_request(caplog: pytest.LogCaptureFixture) -> None:
    with LatencyMetric("w", "S") as metric:
        metric.record(5)
    assert [record.message for record in caplog.records] == [
        "The client latency of w could not be published: You must specify a region."
    ]


@pytest.mark.parametrize("names", [("", "SpellcheckStack"), ("spellcheck", "")])
def test_a_metric_needs_a_workload_and_a_stack(names: tuple[str, str]) -> None:
    """Else two stages in one account would share the metric and its alarm."""
    assert message_of(ValueError, LatencyMetric, *names) == (
        f"LatencyMetric: got workload '{names[0]}' and stack '{names[1]}'. Both are required. The stack is the "
        "one that serves the callers, such as Production-SpellcheckStack. Its alarms watch the metric."
    )
