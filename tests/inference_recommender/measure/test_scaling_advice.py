"""AWS's own scaling policy is asked for in the API's shapes, and stands beside ours whatever it says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import validate_parameters

from aws_api.errors import AwsRefused
from inference_recommender.measure.scaling_advice import WithScalingAdvice, advice
from inference_recommender.measurement import measurements
from inference_recommender.report.candidates import advice_text
from inference_recommender.run_folder import Jobs, RunFolder
from tests.inference_recommender.api import description
from workloads import load_workload
from workloads.recommendation import ScalingAdvice

(MEASURED,) = measurements(description(), [], {})
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


class Service:
    def __init__(self, answer: Mapping[str, Any] | AwsRefused) -> None:
        self.answer = answer
        self.asked: list[Mapping[str, Any]] = []

    def scaling_configuration(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(request)
        if isinstance(self.answer, AwsRefused):
            raise self.answer
        return self.answer


@pytest.fixture
def kept(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "job-1")
    folder.keep_workload(load_workload("spellcheck").workload)
    folder.keep_jobs(Jobs(token="t", names=("job-1",), expected_s=60.0, payload_url="s3://b/k"), ({},))
    folder.keep_job(1, description(), [])
    return folder


def test_it_is_asked_for_the_objectives_trough_and_peak_in_the_apis_shape(kept: RunFolder) -> None:
    service = Service(ANSWER)
    found = WithScalingAdvice(service)(MEASURED, kept).scaling_advice
    (asked,) = service.asked
    model = botocore.session.get_session().get_service_model("sagemaker")
    shape = model.operation_model("GetScalingConfigurationRecommendation").input_shape
    assert shape is not None
    validate_parameters(dict(asked), shape)
    assert asked["RecommendationId"] == "job-1/1"
    assert asked["ScalingPolicyObjective"] == {"MinInvocationsPerMinute": 24_000, "MaxInvocationsPerMinute": 240_000}
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


def test_a_refusal_is_told_and_ends_nothing(kept: RunFolder) -> None:
    refused = AwsRefused("GetScalingConfigurationRecommendation", "AccessDeniedException", "not you.")
    found = WithScalingAdvice(Service(refused))(MEASURED, kept).scaling_advice
    assert found is not None
    assert advice_text(found) == (
        "AWS returned no scaling policy: AWS refused GetScalingConfigurationRecommendation: "
        "AccessDeniedException: not you."
    )


def test_an_endpoint_of_no_recommendation_is_not_asked_about(kept: RunFolder) -> None:
    service, other = Service(ANSWER), MEASURED.model_copy(update={"endpoint_name": "mine"})
    assert WithScalingAdvice(service)(other, kept) is other
    assert not service.asked


def test_an_answer_without_a_policy_is_none() -> None:
    assert advice({}).reason == "The service answered without a policy."
