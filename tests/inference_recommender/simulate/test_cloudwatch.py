"""An endpoint's recorded invocations from CloudWatch: in pages, by variant, without the empty minutes."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import boto3
from botocore.stub import Stubber

from aws_api.session import AwsSession
from inference_recommender.simulate.trace import recorded
from tests.builders import message_of
from workloads import Unavailable

NOW = datetime(2026, 11, 23, 7, 0, 30, tzinfo=UTC)
START = datetime(2026, 11, 22, 7, 0, tzinfo=UTC)


class RecordedAccount(AwsSession):
    """Answers with the variants' minutes, one variant a page."""

    def __init__(self, *sums: dict[int, float]) -> None:
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
        cloudwatch = boto3.client("cloudwatch", **keys)  # type: ignore[call-overload]
        variants = [{"VariantName": f"v{number}"} for number in range(len(sums))]
        sagemaker = SimpleNamespace(describe_endpoint=lambda **_: {"ProductionVariants": variants})
        self.clients: dict[str, Any] = {"sagemaker": sagemaker, "cloudwatch": cloudwatch}
        stub = Stubber(cloudwatch)
        for page, minutes in enumerate(sums):
            times = [START + timedelta(minutes=minute) for minute in minutes]
            answer: dict[str, Any] = {"MetricDataResults": [{"Timestamps": times, "Values": list(minutes.values())}]}
            stub.add_response("get_metric_data", answer | ({"NextToken": "more"} if page + 1 < len(sums) else {}))
        stub.activate()

    def client(self, service: str) -> Any:
        return self.clients[service]


def test_the_minutes_of_all_variants_and_pages_are_added_and_empty_ones_are_0() -> None:
    trace = recorded(RecordedAccount({0: 600.0, 2: 60.0}, {2: 120.0}), "shop", 1, NOW)
    assert (trace.name, trace.start, len(trace.rates)) == ("shop", START, 1440)
    assert trace.rates[:4].tolist() == [10, 0, 3, 0]


def test_an_endpoint_without_traffic_is_an_error() -> None:
    assert message_of(Unavailable, recorded, RecordedAccount({}), "shop", 1, NOW) == (
        "--trace cloudwatch:shop: CloudWatch has no invocation of shop in the last 1 day. Look further back with "
        "--days, or simulate a shape with --trace."
    )
