"""The port to Inference Recommender, the wait for a job, its stop, and AWS's own scaling policy for a test.

GetScalingConfigurationRecommendation takes no latency objective, and its figures are of the job's closed-loop users, so
it decides nothing here. The report shows it beside ours.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from aws_api.errors import AwsRefused, AwsUnavailable
from aws_api.session import Notify
from inference_recommender.capacity.time_series import Series
from inference_recommender.measure.job_metrics import MetricSource, latest_series
from inference_recommender.progress import Progress, ProgressUpdate
from workloads import LatencyObjective
from workloads.recommendation import ScalingAdvice

Sleep = Callable[[float], None]

TERMINAL = frozenset({"COMPLETED", "FAILED", "STOPPED", "DELETED"})
NOT_OFFERED = frozenset({"NotImplemented", "UnknownOperationException"})
"""Error codes of an account without an operation."""
STOPPING_LIMIT_S = 120.0
"""Longest wait for the end of a job that was stopped, in seconds."""


class JobService(MetricSource, Protocol):
    """Inference Recommender in the API's shapes. `aws_api.sagemaker.SageMakerAccount` is one. Every method raises
    `AwsUnavailable` if the service is unreachable or rejects a call.
    """

    notify: Notify | None
    """Receives a sentence about an outage, which every call then outlasts for up to 15 minutes: a job continues and
    costs money while its run cannot see it. With None, a call fails after some seconds."""

    @property
    def region(self) -> str: ...

    def stop_retrying(self) -> None:
        """Sets `notify` to None, for running calls too."""

    def upload(self, url: str, body: bytes) -> None:
        """Writes an S3 object."""

    def create_job(self, request: Mapping[str, Any]) -> str:
        """Returns the new job's ARN. Raises `JobNameTaken`."""

    def describe_job(self, name: str) -> dict[str, Any]: ...

    def job_steps(self, name: str) -> list[dict[str, Any]]: ...

    def stop_job(self, name: str) -> None: ...

    def tags(self, arn: str) -> dict[str, str]: ...

    def container_log(self, job_name: str, endpoint_name: str) -> list[str]:
        """Returns the last lines of a test's container; none if there is no log or it may not be read."""

    def scaling_configuration(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Calls GetScalingConfigurationRecommendation."""


def poll_interval_s(expected_s: float) -> float:
    """Returns a sixtieth of the expected duration, between 2 s and 30 s."""
    return min(max(expected_s / 60, 2.0), 30.0)


def wait_for_job(
    service: JobService,
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
        described = service.describe_job(name)
        progress.update(replace(_update(service, described, expected_s, percentile), number=place[0], jobs=place[1]))
        if described["Status"] in TERMINAL:
            return described
        sleep(poll_interval_s(expected_s))


def stop_and_wait(service: JobService, name: str, sleep: Sleep = time.sleep) -> dict[str, Any]:
    """Stops the job, waits for its end for at most `STOPPING_LIMIT_S`, and returns its description."""
    described = service.describe_job(name)
    if described["Status"] not in TERMINAL:
        try:
            service.stop_job(name)
        except AwsRefused:
            described = service.describe_job(name)  # the job may have ended between the two calls
            if described["Status"] not in TERMINAL:
                raise
    waited_s = 0.0
    while described["Status"] not in TERMINAL and waited_s < STOPPING_LIMIT_S:
        sleep(1.0)
        waited_s += 1.0
        described = service.describe_job(name)
    return described


def _update(service: JobService, described: Mapping[str, Any], expected_s: float, percentile: str) -> ProgressUpdate:
    elapsed = ((described.get("CompletionTime") or datetime.now(UTC)) - described["CreationTime"]).total_seconds()
    update = ProgressUpdate(
        job_name=described["JobName"], status=described["Status"], elapsed_s=elapsed, expected_s=expected_s
    )
    if described["Status"] != "IN_PROGRESS":
        return update
    steps = service.job_steps(described["JobName"])
    running = [series for series in latest_series(service, described, steps) if series.seconds]
    return _with_latest(update, running[-1], percentile) if running else update


def _with_latest(update: ProgressUpdate, series: Series, percentile: str) -> ProgressUpdate:
    # The last point may be incomplete.
    at = -2 if len(series.seconds) > 1 else -1
    shown = percentile if percentile in series.latency_ms else "p99"
    return replace(
        update,
        percentile=shown,
        users=series.users[at],
        invocations_per_minute=series.invocations_per_minute()[at],
        latency_ms=series.latency_ms[shown][at],
    )


def scaling_advice(
    service: JobService, described: Mapping[str, Any], endpoint: str, objective: LatencyObjective
) -> ScalingAdvice | None:
    """Returns AWS's policy for the job's test on `endpoint`, or the reason why there is none. Returns None for an
    existing endpoint, a failed test, or an account that does not offer it.
    """
    found = (
        one["RecommendationId"]
        for one in described.get("InferenceRecommendations", [])
        if one["EndpointConfiguration"]["EndpointName"] == endpoint and "RecommendationId" in one
    )
    if (recommendation_id := next(found, None)) is None:
        return None
    try:
        answer = service.scaling_configuration(scaling_request(described["JobName"], recommendation_id, objective))
    except AwsUnavailable as error:
        offered = not isinstance(error, AwsRefused) or error.code not in NOT_OFFERED
        return ScalingAdvice(reason=str(error)) if offered else None
    return read_advice(answer)


def scaling_request(job: str, recommendation_id: str, objective: LatencyObjective) -> dict[str, Any]:
    return {
        "InferenceRecommendationsJobName": job,
        "RecommendationId": recommendation_id,
        "ScalingPolicyObjective": {
            "MinInvocationsPerMinute": max(objective.trough_invocations_per_minute, 1),
            "MaxInvocationsPerMinute": objective.peak_invocations_per_minute,
        },
    }


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
