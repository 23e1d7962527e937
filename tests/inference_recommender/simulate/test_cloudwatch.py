"""An endpoint's recorded invocations, as CloudWatch gives them: in pages, by variant, without the empty minutes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aws_api.session import AwsSession
from inference_recommender.__main__ import main
from inference_recommender.simulate.cloudwatch import recorded
from workloads import Unavailable

NOW = datetime(2026, 11, 23, 7, 0, 30, tzinfo=UTC)
START = datetime(2026, 11, 22, 7, 0, tzinfo=UTC)


class Account(AwsSession):
    """Answers in two pages: the first variant's minutes, then the second's."""

    def __init__(self, sums: tuple[dict[int, float], ...]) -> None:
        super().__init__(region="us-east-1")
        self.sums = sums
        self.asked: list[dict[str, Any]] = []

    def client(self, service: str) -> Any:
        return self

    def describe_endpoint(self, **request: Any) -> dict[str, Any]:
        return {"ProductionVariants": [{"VariantName": f"v{number}"} for number in range(len(self.sums))]}

    def get_metric_data(self, **request: Any) -> dict[str, Any]:
        self.asked.append(dict(request))
        page = int(request.get("NextToken", 0))
        sums = self.sums[page]
        result = {
            "Id": f"variant{page}",
            "Timestamps": [START + timedelta(minutes=minute) for minute in sums],
            "Values": list(sums.values()),
        }
        more = {"NextToken": str(page + 1)} if page + 1 < len(self.sums) else {}
        return {"MetricDataResults": [result], **more}


def test_the_minutes_of_all_variants_and_pages_are_added_and_empty_ones_are_0() -> None:
    account = Account(({0: 600.0, 2: 60.0}, {2: 120.0}))
    trace = recorded(account, "shop", 1, NOW)
    assert (trace.name, trace.start, trace.step_s, len(trace.rates)) == ("shop", START, 60, 1440)
    assert trace.rates[:4].tolist() == [10, 0, 3, 0]
    assert recorded(account, "shop", 1, NOW).sha256 == trace.sha256
    query = account.asked[0]["MetricDataQueries"][1]["MetricStat"]
    assert (query["Period"], query["Stat"], query["Metric"]["MetricName"]) == (60, "Sum", "Invocations")


def test_an_endpoint_without_traffic_is_said_to_have_none() -> None:
    with pytest.raises(Unavailable) as refused:
        recorded(Account(({},)), "shop", 1, NOW)
    assert str(refused.value) == (
        "--trace cloudwatch:shop: CloudWatch has no invocation of shop in the last 1 day. Look further back with "
        "--days, or simulate a shape with --trace."
    )


def test_more_days_than_cloudwatch_keeps_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "spellcheck", "--trace", "cloudwatch:shop", "--days", "16"]) == 2
    assert capsys.readouterr().err.strip() == (
        "--days: got 16. CloudWatch keeps minutes for 15 days; give at most that."
    )
