"""The recorded traffic of an endpoint as a trace, from CloudWatch's Invocations of each minute.

CloudWatch keeps minutes for fifteen days. A minute without a datapoint has no invocations. Variants are added up.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from aws_api.errors import translate_aws_errors
from aws_api.session import AwsSession
from inference_recommender.simulate.trace import Trace, even_trace
from workloads import Unavailable, UsageError

KEPT_DAYS = 15
"""Retention of CloudWatch's datapoints of a minute."""
DEFAULT_DAYS = 14
MINUTE = timedelta(minutes=1)


def check_days(days: int) -> None:
    """Raises `UsageError` for minutes that CloudWatch no longer has."""
    if days > KEPT_DAYS:
        raise UsageError(f"--days: got {days}. CloudWatch keeps minutes for {KEPT_DAYS} days; give at most that.")


def recorded(session: AwsSession, endpoint: str, days: int, now: datetime) -> Trace:
    """Returns the minutes of the last `days` before `now`. Raises `Unavailable`, also without any traffic."""
    end = now.replace(second=0, microsecond=0)
    start = end - timedelta(days=days)
    with translate_aws_errors("DescribeEndpoint"):
        described = session.client("sagemaker").describe_endpoint(EndpointName=endpoint)
    variants = [each["VariantName"] for each in described.get("ProductionVariants", [])]
    by_minute: dict[datetime, float] = {}
    request: dict[str, Any] = {
        "MetricDataQueries": queries(endpoint, variants),
        "StartTime": start,
        "EndTime": end,
        "ScanBy": "TimestampAscending",
    }
    while True:
        with translate_aws_errors("GetMetricData"):
            found = session.client("cloudwatch").get_metric_data(**request)
        for result in found["MetricDataResults"]:
            for at, value in zip(result["Timestamps"], result["Values"], strict=True):
                by_minute[at] = by_minute.get(at, 0.0) + float(value)
        if not found.get("NextToken"):
            return trace_of(endpoint, by_minute, start, days)
        request["NextToken"] = found["NextToken"]


def queries(endpoint: str, variants: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the MetricDataQueries for the invocations of each variant."""
    return [
        {
            "Id": f"variant{number}",
            "MetricStat": {
                "Metric": {
                    "Namespace": "AWS/SageMaker",
                    "MetricName": "Invocations",
                    "Dimensions": [
                        {"Name": "EndpointName", "Value": endpoint},
                        {"Name": "VariantName", "Value": variant},
                    ],
                },
                "Period": 60,
                "Stat": "Sum",
            },
        }
        for number, variant in enumerate(variants)
    ]


def trace_of(endpoint: str, by_minute: Mapping[datetime, float], start: datetime, days: int) -> Trace:
    """Returns invocations by minute as a trace of rates per second. Raises `Unavailable` without invocations."""
    if not any(by_minute.values()):
        period = f"{days} day{'s' * (days != 1)}"
        raise Unavailable(
            f"--trace cloudwatch:{endpoint}: CloudWatch has no invocation of {endpoint} in the last {period}. Look "
            "further back with --days, or simulate a shape with --trace."
        )
    rates = [by_minute.get(start + number * MINUTE, 0.0) / 60 for number in range(days * 24 * 60)]
    content = json.dumps([start.isoformat(), rates]).encode()
    return even_trace(endpoint, hashlib.sha256(content).hexdigest(), start.timestamp(), 60, rates)
