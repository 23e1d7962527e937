"""The wait for an Inference Recommender job, its stop, its time series and AWS's own scaling policy for its tests.

Inference Recommender publishes its client's view (ClientInvocations, ClientLatency in ms, NumberOfUsers) by job and
endpoint in CloudWatch. SageMaker publishes the endpoint's ModelLatency in µs.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from aws_api.errors import AwsRefused, AwsUnavailable
from aws_api.sagemaker import SageMakerAccount
from inference_recommender.capacity.time_series import Series
from inference_recommender.measurement import results
from inference_recommender.progress import Progress, ProgressUpdate
from workloads import LatencyObjective
from workloads.recommendation import ScalingAdvice

Sleep = Callable[[float], None]
Points = Mapping[str, Mapping[datetime, float]]
"""Metric values by query id and timestamp."""

TERMINAL = frozenset({"COMPLETED", "FAILED", "STOPPED", "DELETED"})
NOT_OFFERED = frozenset({"NotImplemented", "UnknownOperationException"})
"""Error codes of an account without an operation."""
STOPPING_LIMIT_S = 120.0
"""Longest wait for the end of a job that was stopped, in seconds."""
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


def poll_interval_s(expected_s: float) -> float:
    """Returns a sixtieth of the expected duration, between 2 s and 30 s."""
    return min(max(expected_s / 60, 2.0), 30.0)


def wait_for_job(
    account: SageMakerAccount,
    name: str,
    expected_s: float,
    progress: Progress,
    sleep: Sleep = time.sleep,
    place: tuple[int, int] = (1, 1),
    percentile: str = "p99",
) -> dict[str, Any]:
    """Returns the job's description when it has ended, whatever its status. `place` is the job's number in its run and
    the number of jobs; `percentile` is that of the latency to show.
    """
    while True:
        described = account.describe_job(name)
        progress.update(replace(_update(account, described, expected_s, percentile), number=place[0], jobs=place[1]))
        if described["Status"] in TERMINAL:
            return described
        sleep(poll_interval_s(expected_s))


def stop_and_wait(account: SageMakerAccount, name: str, sleep: Sleep = time.sleep) -> dict[str, Any]:
    """Stops the job, waits for its end for at most `STOPPING_LIMIT_S`, and returns its description."""
    described = account.describe_job(name)
    if described["Status"] not in TERMINAL:
        try:
            account.stop_job(name)
        except AwsRefused:
            described = account.describe_job(name)  # the job may have ended between the two calls
            if described["Status"] not in TERMINAL:
                raise
    waited_s = 0.0
    while described["Status"] not in TERMINAL and waited_s < STOPPING_LIMIT_S:
        sleep(1.0)
        waited_s += 1.0
        described = account.describe_job(name)
    return described


def _update(
    account: SageMakerAccount, described: Mapping[str, Any], expected_s: float, percentile: str
) -> ProgressUpdate:
    name, status, now = described["JobName"], described["Status"], datetime.now(UTC)
    elapsed = ((described.get("CompletionTime") or now) - described["CreationTime"]).total_seconds()
    update = ProgressUpdate(job_name=name, status=status, elapsed_s=elapsed, expected_s=expected_s)
    if status != "IN_PROGRESS":
        return update
    endpoints = _variants(described, account.job_steps(name), None)
    latest = [_finest(account, name, endpoint, now - LATEST, now) for endpoint in endpoints]
    if not (running := [one for one in latest if one.seconds]):
        return update
    one = running[-1]
    at = -2 if len(one.seconds) > 1 else -1  # the last point may be incomplete
    shown = percentile if percentile in one.latency_ms else "p99"
    return replace(
        update,
        percentile=shown,
        users=one.users[at],
        invocations_per_minute=one.invocations_per_minute()[at],
        latency_ms=one.latency_ms[shown][at],
    )


def scaling_advice(
    account: SageMakerAccount, described: Mapping[str, Any], endpoint: str, objective: LatencyObjective
) -> ScalingAdvice | None:
    """Returns AWS's policy for the job's test on `endpoint`, or the reason why there is none. Returns None for an
    existing endpoint, a failed test, or an account that does not offer it.
    """
    ids = (
        one["RecommendationId"]
        for one in described.get("InferenceRecommendations", [])
        if one["EndpointConfiguration"]["EndpointName"] == endpoint and "RecommendationId" in one
    )
    if (recommendation_id := next(ids, None)) is None:
        return None
    rates = {
        "MinInvocationsPerMinute": max(objective.trough_invocations_per_minute, 1),
        "MaxInvocationsPerMinute": objective.peak_invocations_per_minute,
    }
    try:
        answer = account.scaling_configuration(
            {
                "InferenceRecommendationsJobName": described["JobName"],
                "RecommendationId": recommendation_id,
                "ScalingPolicyObjective": rates,
            }
        )
    except AwsUnavailable as error:
        offered = not isinstance(error, AwsRefused) or error.code not in NOT_OFFERED
        return ScalingAdvice(reason=str(error)) if offered else None
    return read_advice(answer)


def read_advice(answer: Mapping[str, Any]) -> ScalingAdvice:
    """Reads a response. Absent members are None."""
    scaling, metric = answer.get("DynamicScalingConfiguration", {}), answer.get("Metric", {})
    policies = [one["TargetTracking"] for one in scaling.get("ScalingPolicies", []) if "TargetTracking" in one]
    tracking: Mapping[str, Any] = policies[0] if policies else {}
    followed = tracking.get("MetricSpecification", {})
    return ScalingAdvice(
        min_capacity=scaling.get("MinCapacity"),
        max_capacity=scaling.get("MaxCapacity"),
        metric=followed.get("Predefined", {}).get("PredefinedMetricType")
        or followed.get("Customized", {}).get("MetricName"),
        target_value=tracking.get("TargetValue"),
        invocations_per_instance=metric.get("InvocationsPerInstance"),
        model_latency=metric.get("ModelLatency"),
        reason=None if scaling else "The service answered without a policy.",
    )


def job_series(
    account: SageMakerAccount,
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
        quantiles = account.metrics(quantile_queries(endpoint, variant), start, end)
        one = _finest(account, name, endpoint, start, end, (variant, percentile))
        found[endpoint] = one.model_copy(update={"model_latency_quantiles_ms": quantiles_ms(quantiles)})
    return found


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
    account: SageMakerAccount,
    job: str,
    endpoint: str,
    start: datetime,
    end: datetime,
    judged: tuple[str, str] | None = None,
) -> Series:
    """Returns the time series at the finest period that has points."""
    duration_s = (end - start).total_seconds()
    for period in (*(step for step, longest_s in FINER_STEPS.items() if duration_s <= longest_s), 60):
        points = account.metrics(time_series_queries(job, endpoint, period, judged), start, end)
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
