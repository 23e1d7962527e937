"""An endpoint publishes the metrics that its scaling reads; on a clock of the test's."""

import time
from collections.abc import Callable

import pytest

from local_aws.cloudwatch import LocalCloudWatchBackend, metric_key, statistic
from local_aws.sagemaker.endpoint_metrics import InvocationMetrics

START = 1_767_571_200
DIMENSIONS = [{"Name": "EndpointName", "Value": "shop"}, {"Name": "VariantName", "Value": "AllTraffic"}]
Published = Callable[[str, str, int], dict[int, float]]


@pytest.fixture(params=[False, True], ids=["as-on-aws", "finer"])
def finer(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def published(finer: bool, monkeypatch: pytest.MonkeyPatch) -> Published:
    """A statistic of a metric by period, after 20 s with an invocation of 250 ms in each of the first twelve, of four
    instances, and two of 1 s each in the fifteenth, of two.
    """
    cloudwatch = LocalCloudWatchBackend("us-east-1", "123456789012", finer=finer)
    metrics = InvocationMetrics(cloudwatch)
    now = [0.0]
    monkeypatch.setattr(time, "time", lambda: now[0])

    def record(second: int, micros: int, instances: int) -> None:
        now[0] = START + second + 0.5
        metrics.record(
            "shop", "AllTraffic", "config", status=200, model_us=micros, overhead_us=10_000, instances=instances
        )

    for second in range(12):
        record(second, 240_000, 4)
    record(15, 990_000, 2)
    record(15, 990_000, 2)
    now[0] = START + 20.0
    metrics.start()
    metrics.close()

    def found(name: str, stat: str, period_s: int) -> dict[int, float]:
        key = metric_key("AWS/SageMaker", name, DIMENSIONS)
        data = cloudwatch.by_period(key, START, START + 60, period_s)
        return {second - START: statistic(stat, each) for second, each in data.items()}

    return found


def test_the_old_and_the_new_fleet_of_an_update_have_metrics_of_their_own() -> None:
    cloudwatch = LocalCloudWatchBackend("us-east-1", "123456789012")
    metrics = InvocationMetrics(cloudwatch)
    for config, micros in (("old", 1000), ("new", 9000)):
        metrics.record("shop", "AllTraffic", config, status=200, model_us=micros, overhead_us=1, instances=1)
    metrics.start()
    metrics.close()

    def highest(*fleet: dict[str, str]) -> float:
        key = metric_key("AWS/SageMaker", "ModelLatency", [*DIMENSIONS, *fleet])
        (data,) = cloudwatch.by_period(key, 0, 1e10, 10**10).values()
        return statistic("Maximum", data)

    fleets = [{"Name": "EndpointConfigName", "Value": config} for config in ("old", "new")]
    assert [highest(), *map(highest, fleets)] == [9000, 1000, 9000]


def test_an_invocation_counts_for_the_instances_that_were_in_service(published: Published) -> None:
    assert published("InvocationsPerInstance", "Sum", 60) == {0: pytest.approx(12 / 4 + 2 / 2)}
    # Requests at once are the time that they took, over ten seconds and the instances.
    found = published("ConcurrentRequestsPerModel", "Average", 10)
    assert found == {0: pytest.approx(10 * 0.25 / 10 / 4), 10: pytest.approx((2 * 0.25 / 4 + 2 * 1.0 / 2) / 10)}


def test_a_service_metric_has_a_datum_each_minute_and_each_second_with_the_switch(
    published: Published, finer: bool
) -> None:
    sums = published("Invocations", "Sum", 1)
    assert sums == ({**dict.fromkeys(range(12), 1.0), 15: 2.0} if finer else {0: 14.0})
