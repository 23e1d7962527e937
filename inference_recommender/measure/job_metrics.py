"""The time series of a job's tests, from CloudWatch.

Inference Recommender publishes its client's view (ClientInvocations, ClientLatency in ms, NumberOfUsers) by job and
endpoint. SageMaker publishes the endpoint's ModelLatency in µs.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from inference_recommender.capacity.time_series import Series
from inference_recommender.measurement import results

JOB_NAMESPACE = "/aws/sagemaker/InferenceRecommendationsJobs"
ENDPOINT_NAMESPACE = "AWS/SageMaker"
LATENCIES = ("p50", "p90", "p95", "p99")
MODEL_LATENCY = "model"
"""Id of the query for the model latency of each period."""
QUANTILES = ("p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p99.9")
DAY_S = 86_400
FINER_STEPS = {1: 60, 5: 900}
"""Period in s → longest test in s that has it. SageMaker publishes every 60 s, the local account more often."""
LATEST = timedelta(seconds=30)
"""Time span of the live view of a test."""

Points = Mapping[str, Mapping[datetime, float]]


class MetricSource(Protocol):
    def metrics(self, queries: Iterable[Mapping[str, Any]], start: datetime, end: datetime) -> Points:
        """Returns the values of MetricDataQueries by query id and timestamp."""


def job_series(
    source: MetricSource,
    describe: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]],
    deployed: Mapping[str, Any] | None,
    percentile: str,
) -> dict[str, Series]:
    """Returns the time series of every test of a job by endpoint name, with the model latency at `percentile` (p99)
    and its quantiles over the whole test.
    """
    name, start = describe["JobName"], describe["CreationTime"]
    end = describe.get("CompletionTime") or datetime.now(UTC)
    found = {}
    for endpoint, variant in _variants(describe, steps, deployed).items():
        quantiles = source.metrics(quantile_queries(endpoint, variant), start, end)
        one = _finest(source, name, endpoint, start, end, (variant, percentile))
        found[endpoint] = one.model_copy(update={"model_latency_quantiles_ms": quantiles_ms(quantiles)})
    return found


def latest_series(
    source: MetricSource, describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]
) -> list[Series]:
    """Returns the last moments of every running test."""
    name, now = describe["JobName"], datetime.now(UTC)
    return [_finest(source, name, endpoint, now - LATEST, now) for endpoint in _variants(describe, steps, None)]


def _variants(
    describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], deployed: Mapping[str, Any] | None
) -> dict[str, str]:
    """Returns the variant's name by the endpoint's, for every test whose endpoint is known."""
    endpoints = [result["EndpointConfiguration"] for result in results(describe, steps, deployed)]
    return {endpoint["EndpointName"]: endpoint["VariantName"] for endpoint in endpoints if "VariantName" in endpoint}


def time_series_queries(
    job_name: str, endpoint_name: str, period_s: int, judged: tuple[str, str] | None = None
) -> list[dict[str, Any]]:
    """Returns the MetricDataQueries of one test. `judged` is the endpoint's variant and a percentile of its model
    latency.
    """
    dimensions = {"JobName": job_name, "EndpointName": endpoint_name}
    statistics = {
        "users": ("NumberOfUsers", "Maximum"),
        "invocations": ("ClientInvocations", "Sum"),
        "errors": ("ClientInvocationErrors", "Sum"),
        "stalled": ("MachineStalledSeconds", "Sum"),
        **{name: ("ClientLatency", name) for name in LATENCIES},
    }
    queries = [
        _query(key, JOB_NAMESPACE, metric, dimensions, stat, period_s) for key, (metric, stat) in statistics.items()
    ]
    if judged is None:
        return queries
    variant, percentile = judged
    of_variant = {"EndpointName": endpoint_name, "VariantName": variant}
    return [*queries, _query(MODEL_LATENCY, ENDPOINT_NAMESPACE, "ModelLatency", of_variant, percentile, period_s)]


def quantile_queries(endpoint_name: str, variant_name: str) -> list[dict[str, Any]]:
    """Returns the MetricDataQueries for the quantiles of model latency over a day. A test that crosses midnight UTC has
    two points.
    """
    dimensions = {"EndpointName": endpoint_name, "VariantName": variant_name}
    return [
        _query(f"q{number}", ENDPOINT_NAMESPACE, "ModelLatency", dimensions, stat, DAY_S)
        for number, stat in enumerate(("SampleCount", *QUANTILES))
    ]


def _finest(
    source: MetricSource, job: str, endpoint: str, start: datetime, end: datetime, judged: tuple[str, str] | None = None
) -> Series:
    """Returns the time series at the finest period that has points."""
    duration_s = (end - start).total_seconds()
    for period in (*(step for step, longest_s in FINER_STEPS.items() if duration_s <= longest_s), 60):
        points = source.metrics(time_series_queries(job, endpoint, period, judged), start, end)
        one = series(points, period, judged[1] if judged else None)
        if one.seconds:
            break
    return one


def series(points: Points, period_s: int, judged: str | None = None) -> Series:
    """Returns the columns at the timestamps that have invocations. `judged` is the percentile of the model latency,
    which CloudWatch has in µs.
    """
    times = sorted(points.get("invocations", {}))

    def column(key: str, divisor: float = 1.0) -> tuple[float | None, ...]:
        values = points.get(key, {})
        return tuple(values[time] / divisor if time in values else None for time in times)

    return Series(
        period_s=period_s,
        seconds=tuple((time - times[0]).total_seconds() for time in times),
        users=column("users"),
        invocations=column("invocations"),
        errors=column("errors"),
        stalled_s=column("stalled") if points.get("stalled") else (),
        latency_ms={name: column(name) for name in LATENCIES},
        model_latency_ms={judged: column(MODEL_LATENCY, 1000)} if judged and points.get(MODEL_LATENCY) else {},
    )


def quantiles_ms(points: Points) -> dict[str, float]:
    """Returns the quantiles of the day with most samples, converted from µs to ms."""
    counts = points.get("q0", {})
    if not counts:
        return {}
    day = max(counts, key=lambda time: counts[time])
    values = {stat: points.get(f"q{number}", {}).get(day) for number, stat in enumerate(QUANTILES, start=1)}
    return {stat: value / 1000 for stat, value in values.items() if value is not None}


def _query(
    key: str, namespace: str, metric: str, dimensions: Mapping[str, str], stat: str, period_s: int
) -> dict[str, Any]:
    named = [{"Name": name, "Value": value} for name, value in dimensions.items()]
    return {
        "Id": key,
        "MetricStat": {
            "Metric": {"Namespace": namespace, "MetricName": metric, "Dimensions": named},
            "Period": period_s,
            "Stat": stat,
        },
    }
