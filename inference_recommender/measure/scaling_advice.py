"""AWS's own scaling policy for a tested configuration, asked for after a job and shown beside ours.

GetScalingConfigurationRecommendation takes the job's recommendation, a target of CPU utilisation (left to the service)
and the fleet's lowest and highest load, which are the objective's trough and peak. It takes no latency objective and no
percentile, and its figures are of the job's closed-loop users: so it decides nothing here. An account on this machine
has no such answer. Source: botocore's service model, 1.44.5.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from aws_api.errors import AwsUnavailable
from inference_recommender.measurement import Measurement
from inference_recommender.run_folder import RunFolder
from workloads import LatencyObjective
from workloads.recommendation import ScalingAdvice


class Asked(Protocol):
    def scaling_configuration(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Calls GetScalingConfigurationRecommendation. Raises `AwsUnavailable`."""


class WithScalingAdvice:
    """Adds AWS's answer, or why there is none, to what a job measured."""

    def __init__(self, service: Asked) -> None:
        self._service = service

    def __call__(self, measured: Measurement, run_folder: RunFolder) -> Measurement:
        found = next(recommendations(measured.endpoint_name, run_folder), None)
        if found is None:  # an existing endpoint, or a test that failed
            return measured
        job, number = found
        try:
            answer = self._service.scaling_configuration(request(job, number, run_folder.workload().latency_objective))
        except AwsUnavailable as error:
            return measured.model_copy(update={"scaling_advice": ScalingAdvice(reason=str(error))})
        return measured.model_copy(update={"scaling_advice": advice(answer)})


def recommendations(endpoint: str, run_folder: RunFolder) -> Iterator[tuple[str, str]]:
    """Yields the job and the RecommendationId of the tests on `endpoint`, which has been deleted since."""
    for number, job in enumerate(run_folder.jobs().names, start=1):
        for found in run_folder.description(number).get("InferenceRecommendations", []):
            if found["EndpointConfiguration"]["EndpointName"] == endpoint and "RecommendationId" in found:
                yield job, found["RecommendationId"]


def request(job: str, recommendation_id: str, objective: LatencyObjective) -> dict[str, Any]:
    return {
        "InferenceRecommendationsJobName": job,
        "RecommendationId": recommendation_id,
        "ScalingPolicyObjective": {
            "MinInvocationsPerMinute": max(objective.trough_invocations_per_minute, 1),
            "MaxInvocationsPerMinute": objective.peak_invocations_per_minute,
        },
    }


def advice(answer: Mapping[str, Any]) -> ScalingAdvice:
    """Reads a response. What it leaves out is None."""
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
