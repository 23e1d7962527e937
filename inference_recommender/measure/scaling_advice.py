"""AWS's own scaling policy for a tested configuration, shown beside ours.

GetScalingConfigurationRecommendation takes the job's recommendation and the lowest and highest load of the objective.
It takes no latency objective, and its figures are of the job's closed-loop users, so it decides nothing here.
"""

from collections.abc import Mapping
from typing import Any

from aws_api.errors import AwsRefused, AwsUnavailable
from inference_recommender.measure.job_service import JobService
from workloads import LatencyObjective
from workloads.recommendation import ScalingAdvice

NOT_OFFERED = frozenset({"NotImplemented", "UnknownOperationException"})
"""Error codes of an account that does not have the operation."""


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
        answer = service.scaling_configuration(request(described["JobName"], recommendation_id, objective))
    except AwsUnavailable as error:
        offered = not isinstance(error, AwsRefused) or error.code not in NOT_OFFERED
        return ScalingAdvice(reason=str(error)) if offered else None
    return advice(answer)


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
