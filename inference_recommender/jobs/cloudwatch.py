"""The time series of a test, read from CloudWatch.

Inference Recommender publishes its client's view (ClientInvocations, ClientLatency in ms, NumberOfUsers) by job and
endpoint; SageMaker publishes the endpoint's (ModelLatency in µs). Queries are built purely; `fetch_series` sends them.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from inference_recommender.capacity.time_series import Series

JOB_NAMESPACE = "/aws/sagemaker/InferenceRecommendationsJobs"
ENDPOINT_NAMESPACE = "AWS/SageMaker"
LATENCIES = ("p50", "p90", "p95", "p99")
QUANTILES = ("p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p99.9")
DAY_S = 86_400
FINER_STEPS = {1: 60, 5: 900}
"""Period in s, and the longest test in s for which that period is asked. SageMaker publishes every 60 s; an account on
this machine publishes finer."""


class MetricData(Protocol):
    """The part of boto3's CloudWatch client that this module uses."""

    def get_metric_data(self, **request: Any) -> Mapping[str, Any]: ...


def time_series_queries(job_name: str, endpoint_name: str, period_s: int) -> list[dict[str, Any]]:
    """Returns the MetricDataQueries for one test's time series."""
    dimensions = {"JobName": job_name, "EndpointName": endpoint_name}
    wanted = {
        "users": ("NumberOfUsers", "Maximum"),
        "invocations": ("ClientInvocations", "Sum"),
        "errors": ("ClientInvocationErrors", "Sum"),
        **{name: ("ClientLatency", name) for name in LATENCIES},
    }
    return [_query(key, JOB_NAMESPACE, metric, dimensions, stat, period_s) for key, (metric, stat) in wanted.items()]


def quantile_queries(endpoint_name: str, variant_name: str) -> list[dict[str, Any]]:
    """Returns the MetricDataQueries for the quantiles of model latency over a whole day. A test that crosses midnight
    UTC falls into two points.
    """
    dimensions = {"EndpointName": endpoint_name, "VariantName": variant_name}
    return [
        _query(f"q{number}", ENDPOINT_NAMESPACE, "ModelLatency", dimensions, stat, DAY_S)
        for number, stat in enumerate(("SampleCount", *QUANTILES))
    ]


def fetch_series(
    client: MetricData, job_name: str, endpoint_name: str, variant_name: str, start: datetime, end: datetime
) -> Series:
    """Returns one test's time series and quantiles between `start` and `end`; empty where CloudWatch has nothing."""
    quantiles = _results(client, quantile_queries(endpoint_name, variant_name), _window(start, end))
    time_series = fetch_time_series(client, job_name, endpoint_name, start, end)
    return time_series.model_copy(update={"model_latency_quantiles_ms": quantiles_ms(quantiles)})


def fetch_time_series(client: MetricData, job_name: str, endpoint_name: str, start: datetime, end: datetime) -> Series:
    """Returns the time series without quantiles, at the finest period that has points."""
    duration_s = (end - start).total_seconds()
    for period in (*(step for step, longest_s in FINER_STEPS.items() if duration_s <= longest_s), 60):
        points = _results(client, time_series_queries(job_name, endpoint_name, period), _window(start, end))
        time_series = series(points, period)
        if time_series.seconds:
            break
    return time_series


def series(points: Mapping[str, Mapping[datetime, float]], period_s: int) -> Series:
    """Returns the columns, aligned on the timestamps at which there were invocations. `points` is by query id."""
    times = sorted(points.get("invocations", {}))

    def column(key: str) -> tuple[float | None, ...]:
        values = points.get(key, {})
        return tuple(values.get(time) for time in times)

    return Series(
        period_s=period_s,
        seconds=tuple((time - times[0]).total_seconds() for time in times),
        users=column("users"),
        invocations=column("invocations"),
        errors=column("errors"),
        latency_ms={name: column(name) for name in LATENCIES},
    )


def quantiles_ms(points: Mapping[str, Mapping[datetime, float]]) -> dict[str, float]:
    """Returns the quantiles of the day with most samples, converted from µs to ms. `points` is by query id."""
    counts = points.get("q0", {})
    if not counts:
        return {}
    day = max(counts, key=lambda time: counts[time])
    values = {stat: points.get(f"q{number}", {}).get(day) for number, stat in enumerate(QUANTILES, start=1)}
    return {stat: value / 1000 for stat, value in values.items() if value is not None}


def _window(start: datetime, end: datetime) -> dict[str, datetime]:
    """Returns the window with a minute to spare on both sides, since a point's time is the beginning of its period."""
    return {"StartTime": start - timedelta(seconds=60), "EndTime": end + timedelta(seconds=60)}


def _query(
    key: str, namespace: str, metric: str, dimensions: Mapping[str, str], stat: str, period_s: int
) -> dict[str, Any]:
    return {
        "Id": key,
        "MetricStat": {
            "Metric": {
                "Namespace": namespace,
                "MetricName": metric,
                "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
            },
            "Period": period_s,
            "Stat": stat,
        },
    }


def _results(
    client: MetricData, queries: Iterable[dict[str, Any]], window: Mapping[str, datetime]
) -> dict[str, dict[datetime, float]]:
    points: dict[str, dict[datetime, float]] = {}
    request: dict[str, Any] = {"MetricDataQueries": list(queries), **window}
    while True:
        response = client.get_metric_data(**request)
        for result in response["MetricDataResults"]:
            points.setdefault(result["Id"], {}).update(zip(result["Timestamps"], result["Values"], strict=True))
        if not (token := response.get("NextToken")):
            return points
        request["NextToken"] = token
