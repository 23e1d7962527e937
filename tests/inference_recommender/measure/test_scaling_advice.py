"""AWS's own scaling policy is requested in the API's shapes, and never ends a run."""

from collections.abc import Mapping
from typing import Any

from aws_api.errors import AwsRefused
from aws_api.service_model import problems
from inference_recommender.measure.job_service import read_advice, scaling_advice
from inference_recommender.report.candidates import advice_text
from tests.inference_recommender.api import FakeService, description
from workloads import load_workload
from workloads.recommendation import ScalingAdvice

ANSWER = {
    "InferenceRecommendationsJobName": "job-1",
    "Metric": {"InvocationsPerInstance": 12_000, "ModelLatency": 21},
    "DynamicScalingConfiguration": {
        "MinCapacity": 2,
        "MaxCapacity": 20,
        "ScaleInCooldown": 300,
        "ScalingPolicies": [
            {
                "TargetTracking": {
                    "MetricSpecification": {
                        "Predefined": {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
                    },
                    "TargetValue": 6000.0,
                }
            }
        ],
    },
}


class Service(FakeService):
    def __init__(self, answer: Mapping[str, Any] | AwsRefused) -> None:
        super().__init__([description()])
        self.answer = answer
        self.requests: list[Mapping[str, Any]] = []

    def scaling_configuration(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        if isinstance(self.answer, AwsRefused):
            raise self.answer
        return dict(self.answer)


def advised(service: Service, endpoint: str = "sm-epc-1") -> ScalingAdvice | None:
    return scaling_advice(service, description(), endpoint, load_workload("spellcheck").workload.latency_objective)


def test_the_request_has_the_objectives_trough_and_peak() -> None:
    service = Service(ANSWER)
    found = advised(service)
    (request,) = service.requests
    assert problems("sagemaker", "GetScalingConfigurationRecommendation", request) == []
    assert request["RecommendationId"] == "job-1/1"
    assert request["ScalingPolicyObjective"] == {"MinInvocationsPerMinute": 24_000, "MaxInvocationsPerMinute": 240_000}
    assert found == ScalingAdvice(
        min_capacity=2,
        max_capacity=20,
        metric="SageMakerVariantInvocationsPerInstance",
        target_value=6_000.0,
        invocations_per_instance=12_000,
        model_latency=21,
    )
    assert advice_text(found) == (
        "AWS's own scaling policy, without a latency objective: 2 to 20 instances, target 6,000 "
        "(SageMakerVariantInvocationsPerInstance)."
    )


def test_a_refusal_is_the_reason_for_no_policy() -> None:
    found = advised(Service(AwsRefused("GetScalingConfigurationRecommendation", "AccessDeniedException", "not you.")))
    assert found is not None
    assert advice_text(found) == (
        "AWS returned no scaling policy: AWS refused GetScalingConfigurationRecommendation: "
        "AccessDeniedException: not you."
    )


def test_an_account_without_the_operation_or_another_endpoint_has_no_advice() -> None:
    assert advised(Service(AwsRefused("GetScalingConfigurationRecommendation", "NotImplemented", "no"))) is None
    service = Service(ANSWER)
    assert advised(service, "mine") is None
    assert service.requests == []


def test_an_answer_without_a_policy_is_none() -> None:
    assert read_advice({}).reason == "The service answered without a policy."
