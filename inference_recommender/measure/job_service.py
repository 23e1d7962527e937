"""The wait for an Inference Recommender job, its stop, its time series and AWS's own scaling policy for its tests.

Inference Recommender publishes its client's view (ClientInvocations, ClientLatency in ms, NumberOfUsers) by job and
endpoint in CloudWatch. SageMaker publishes the endpoint's ModelLatency in µs.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from aws_api.errors import AwsRefused, AwsUnavailable
from aws_api.sagemaker import FINER_METRICS_TAG, SageMakerAccount
from aws_api.session import metric_query
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
"""Period in s → longest test in s that is read with it, on an account with finer metrics than SageMaker's. Those have a
datum each minute, and CloudWatch may answer a finer period with the sum of the minute."""


def wait_for_job(
    account: SageMakerAccount,
    name: str,
    expected_s: float,
    progress: Progress,
    sleep: Sleep = time.sleep,
    place: tuple[int, int] = (1, 1),
) -> dict[str, Any]:
    """Returns the job's description when it has ended, whatever its status. `place` is the job's number in its run and
    the number of jobs.
    """
    while True:
        described = account.describe_job(name)
        ended = described.get("CompletionTime") or datetime.now(UTC)
        progress.update(
            ProgressUpdate(
                job_name=name,
                status=described["Status"],
                elapsed_s=(ended - described["CreationTime"]).total_seconds(),
                expected_s=expected_s,
                number=place[0],
                jobs=place[1],
            )
        )
        if described["Status"] in TERMINAL:
            return described
        sleep(min(max(expected_s / 60, 2.0), 30.0))


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
    existing_endpoint: Mapping[str, Any] | None,
    percentile: str,
) -> dict[str, Series]:
    """Returns the time series of every test of a job by endpoint name, at the finest period that the account has, with
    the model latency at `percentile` (p99) and its quantiles over the whole test.
    """
    name, start = describe["JobName"], describe["CreationTime"]
    end = describe.get("CompletionTime") or datetime.now(UTC)
    finer = FINER_STEPS if FINER_METRICS_TAG in account.tags(describe["JobArn"]) else {}
    periods = [step for step, longest_s in finer.items() if (end - start).total_seconds() <= longest_s]
    endpoints = [result["EndpointConfiguration"] for result in results(describe, steps, existing_endpoint)]
    found = {}
    for one in endpoints:
        if "VariantName" in one and one["EndpointName"] not in found:
            of_variant = {"EndpointName": one["EndpointName"], "VariantName": one["VariantName"]}
            quantiles = quantiles_ms(account.metrics(quantile_queries(of_variant), start, end))
            for period in (*periods, 60):
                points = account.metrics(time_series_queries(name, of_variant, period, percentile), start, end)
                if (columns := series(points, period, percentile)).seconds:
                    break
            found[one["EndpointName"]] = columns.model_copy(update={"model_latency_quantiles_ms": quantiles})
    return found


def time_series_queries(
    job: str, of_variant: Mapping[str, str], period_s: int, percentile: str
) -> list[dict[str, Any]]:
    """Returns the MetricDataQueries of one test, with a percentile of the model latency."""
    of_job = {"JobName": job, "EndpointName": of_variant["EndpointName"]}
    statistics = {
        "users": ("NumberOfUsers", "Maximum"),
        "invocations": ("ClientInvocations", "Sum"),
        "errors": ("ClientInvocationErrors", "Sum"),
        "stalled": ("MachineStalledSeconds", "Sum"),
        **{name: ("ClientLatency", name) for name in LATENCIES},
    }
    return [
        *(
            metric_query(key, JOB_NAMESPACE, metric, of_job, stat, period_s)
            for key, (metric, stat) in statistics.items()
        ),
        metric_query(MODEL_LATENCY, ENDPOINT_NAMESPACE, "ModelLatency", of_variant, percentile, period_s),
    ]


def quantile_queries(of_variant: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns the MetricDataQueries for the quantiles of model latency over a day. A test that crosses midnight UTC has
    two points.
    """
    return [
        metric_query(f"q{number}", ENDPOINT_NAMESPACE, "ModelLatency", of_variant, stat, DAY_S)
        for number, stat in enumerate(("SampleCount", *QUANTILES))
    ]


def series(points: Points, period_s: int, percentile: str) -> Series:
    """Returns the columns at the timestamps that have invocations. CloudWatch has the model latency in µs."""
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
        model_latency_ms={percentile: column(MODEL_LATENCY, 1000)} if points.get(MODEL_LATENCY) else {},
    )


def quantiles_ms(points: Points) -> dict[str, float]:
    """Returns the quantiles of the day with most samples, converted from µs to ms."""
    counts = points.get("q0", {})
    if not counts:
        return {}
    day = max(counts, key=lambda time: counts[time])
    values = {stat: points.get(f"q{number}", {}).get(day) for number, stat in enumerate(QUANTILES, start=1)}
    return {stat: value / 1000 for stat, value in values.items() if value is not None}
