"""The blocks of an endpoint's template as the API calls that they become, to botocore."""

import pytest

from tests.stacks.miniature import Synthesis
from tests.stacks.templates import api_problems


@pytest.mark.parametrize("name", ["unmeasured", "measured", "everything"])
def test_each_sagemaker_block_is_a_valid_api_call(name: str, request: pytest.FixtureRequest) -> None:
    synthesis: Synthesis = request.getfixturevalue(name)
    for model in synthesis.of_type("AWS::SageMaker::Model").values():
        assert api_problems("sagemaker", "CreateModel", {"ModelName": "m", **model["Properties"]}) == []
    config = synthesis.only("AWS::SageMaker::EndpointConfig")
    assert api_problems("sagemaker", "CreateEndpointConfig", {"EndpointConfigName": "c", **config}) == []
    endpoint = synthesis.only("AWS::SageMaker::Endpoint")
    # Only an update takes RetainAllVariantProperties.
    assert api_problems("sagemaker", "UpdateEndpoint", endpoint) == []
    del endpoint["RetainAllVariantProperties"]
    assert api_problems("sagemaker", "CreateEndpoint", endpoint) == []


def test_the_blocks_of_each_committed_endpoint_are_valid_api_calls(committed: Synthesis) -> None:
    for config in committed.of_type("AWS::SageMaker::EndpointConfig").values():
        called = {"EndpointConfigName": "c", **config["Properties"]}
        assert api_problems("sagemaker", "CreateEndpointConfig", called) == []
    for endpoint in committed.of_type("AWS::SageMaker::Endpoint").values():
        assert api_problems("sagemaker", "UpdateEndpoint", endpoint["Properties"]) == []


@pytest.mark.parametrize("name", ["measured", "everything"])
def test_each_scaling_block_is_a_valid_api_call(name: str, request: pytest.FixtureRequest) -> None:
    synthesis: Synthesis = request.getfixturevalue(name)
    target = synthesis.only("AWS::ApplicationAutoScaling::ScalableTarget")
    of_target = {key: target[key] for key in ("ServiceNamespace", "ResourceId", "ScalableDimension")}
    for action in target.pop("ScheduledActions", []):
        assert api_problems("application-autoscaling", "PutScheduledAction", {**of_target, **action}) == []
    assert api_problems("application-autoscaling", "RegisterScalableTarget", target) == []
    policies = synthesis.of_type("AWS::ApplicationAutoScaling::ScalingPolicy").values()
    assert policies
    for policy in policies:
        called = {**of_target, **policy["Properties"]}
        del called["ScalingTargetId"]
        assert api_problems("application-autoscaling", "PutScalingPolicy", called) == []


def test_each_alarm_and_the_dashboard_are_valid_api_calls(measured: Synthesis) -> None:
    alarms = measured.of_type("AWS::CloudWatch::Alarm").values()
    assert len(alarms) == 7
    for alarm in alarms:
        assert api_problems("cloudwatch", "PutMetricAlarm", {"AlarmName": "a", **alarm["Properties"]}) == []
    composite = measured.only("AWS::CloudWatch::CompositeAlarm")
    assert api_problems("cloudwatch", "PutCompositeAlarm", composite) == []
    dashboard = measured.only("AWS::CloudWatch::Dashboard")
    assert api_problems("cloudwatch", "PutDashboard", {"DashboardName": "d", **dashboard}) == []


def test_the_check_of_api_calls_sees_a_wrong_type_and_a_wrong_word() -> None:
    variant = {"VariantName": "v", "InstanceType": "ml.g9.xlarge", "InitialInstanceCount": "1"}
    wrong = api_problems(
        "sagemaker", "CreateEndpointConfig", {"EndpointConfigName": "c", "ProductionVariants": [variant]}
    )
    assert any("InitialInstanceCount" in problem for problem in wrong)
    assert "ml.g9.xlarge is not one of ProductionVariantInstanceType" in wrong
