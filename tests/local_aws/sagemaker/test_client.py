"""The production client on an unchanged account: an endpoint with a real Triton, and its CloudWatch."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from inference_recommender.client import InferenceClient, LatencyMetric, SageMakerEndpoint
from tests.local_aws.conftest import Endpoints

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def endpoint(sagemaker: Any) -> Iterator[str]:
    made = Endpoints(sagemaker)
    name = made.create("asked", config=made.config("asked-config", DELAY_S="0.03"))
    assert made.settled(name)["EndpointStatus"] == "InService"
    yield name
    made.delete_all()


@pytest.mark.parametrize("binary", [True, False])
def test_answers_come_back_and_what_callers_waited_is_in_cloudwatch(
    endpoint: str, client: Callable[[str], Any], binary: bool
) -> None:
    name = f"asked-in-{'binary' if binary else 'json'}"
    server = SageMakerEndpoint(endpoint, client=client("sagemaker-runtime"))
    with LatencyMetric(name, endpoint, client=client("cloudwatch")) as latency:
        asking = InferenceClient(server, binary=binary, latency=latency)
        answers = [asking.infer({"TEXT": [["süß"]]})["OUT"].tolist() for _ in range(3)]
    assert answers == [[["got süß".encode()]]] * 3
    now = datetime.now(UTC)
    (point,) = client("cloudwatch").get_metric_statistics(
        Namespace="TransformersInProduction",
        MetricName="ClientLatency",
        Dimensions=[{"Name": "Workload", "Value": name}, {"Name": "Stack", "Value": endpoint}],
        StartTime=now - timedelta(hours=1),
        EndTime=now + timedelta(hours=1),
        Period=86_400,
        Statistics=["SampleCount", "Minimum"],
    )["Datapoints"]
    assert point["SampleCount"] == 3
    assert point["Minimum"] >= 30
