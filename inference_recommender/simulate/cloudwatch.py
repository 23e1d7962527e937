"""The recorded traffic of an endpoint as a trace, from CloudWatch's Invocations of each minute.

CloudWatch keeps minutes for fifteen days. A minute without a datapoint has no invocations. Variants are added up.
"""

import hashlib
import json
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from aws_api.errors import translate_aws_errors
from aws_api.session import AwsSession
from inference_recommender.simulate.trace import Trace
from workloads import Unavailable, UsageError

KEPT_DAYS = 15
"""Retention of CloudWatch's datapoints of a minute."""
DEFAULT_DAYS = 14
MINUTE = timedelta(minutes=1)


def recorded(session: AwsSession, endpoint: str, days: int, now: datetime) -> Trace:
    """Returns the minutes of the last `days` before `now`. Raises `Unavailable`, also without any traffic."""
    if days > KEPT_DAYS:
        raise UsageError(f"--days: got {days}. CloudWatch keeps minutes for {KEPT_DAYS} days; give at most that.")
    end = now.replace(second=0, microsecond=0)
    start = end - timedelta(days=days)
    with translate_aws_errors("DescribeEndpoint"):
        described = session.client("sagemaker").describe_endpoint(EndpointName=endpoint)
    variants = [each["VariantName"] for each in described.get("ProductionVariants", [])]
    queries = [_query(f"variant{number}", endpoint, variant) for number, variant in enumerate(variants)]
    by_minute: dict[datetime, float] = {}
    with translate_aws_errors("GetMetricData"):
        pages = session.client("cloudwatch").get_paginator("get_metric_data")
        for page in pages.paginate(MetricDataQueries=queries, StartTime=start, EndTime=end):
            for result in page["MetricDataResults"]:
                for at, value in zip(result["Timestamps"], result["Values"], strict=True):
                    by_minute[at] = by_minute.get(at, 0.0) + float(value)
    if not any(by_minute.values()):
        period = f"{days} day{'s' * (days != 1)}"
        raise Unavailable(
            f"--trace cloudwatch:{endpoint}: CloudWatch has no invocation of {endpoint} in the last {period}. Look "
            "further back with --days, or simulate a shape with --trace."
        )
    rates = [by_minute.get(start + number * MINUTE, 0.0) / 60 for number in range(days * 24 * 60)]
    sha256 = hashlib.sha256(json.dumps([start.isoformat(), rates]).encode()).hexdigest()
    return Trace(name=endpoint, sha256=sha256, start=start, rates=np.array(rates))


def _query(name: str, endpoint: str, variant: str) -> dict[str, Any]:
    dimensions = [{"Name": "EndpointName", "Value": endpoint}, {"Name": "VariantName", "Value": variant}]
    metric = {"Namespace": "AWS/SageMaker", "MetricName": "Invocations", "Dimensions": dimensions}
    return {"Id": name, "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Sum"}}
