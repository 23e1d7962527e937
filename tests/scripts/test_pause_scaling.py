"""Scaling leaves a stack before a release changes the type of its instances."""

import json
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError

from scripts.release.pause_scaling import pause

SCALES = {
    "Resources": {
        "Endpoint": {"Type": "AWS::SageMaker::Endpoint"},
        "Target": {"Type": "AWS::ApplicationAutoScaling::ScalableTarget"},
        "Policy": {"Type": "AWS::ApplicationAutoScaling::ScalingPolicy"},
    }
}
FIXED = {"Resources": {"Endpoint": {"Type": "AWS::SageMaker::Endpoint"}}}


def clients(template: dict[str, Any], instance_type: str = "ml.g4dn.xlarge") -> tuple[Mock, Mock]:
    """A deployed stack, whose endpoint runs on `instance_type`."""
    cloudformation, sagemaker = Mock(), Mock()
    outputs = [{"OutputKey": "EndpointName", "OutputValue": "Production-S"}]
    cloudformation.describe_stacks.return_value = {"Stacks": [{"Outputs": outputs}]}
    cloudformation.get_template.return_value = {"TemplateBody": template}
    sagemaker.describe_endpoint.return_value = {"EndpointConfigName": "c"}
    sagemaker.describe_endpoint_config.return_value = {"ProductionVariants": [{"InstanceType": instance_type}]}
    return cloudformation, sagemaker


def test_a_stack_whose_type_changes_is_updated_to_its_template_without_scaling() -> None:
    cloudformation, sagemaker = clients(SCALES)
    line = pause("Production-S", "ml.g5.xlarge", cloudformation, sagemaker)
    assert line == (
        "Production-S moves from ml.g4dn.xlarge to ml.g5.xlarge. It does not scale until its deployment has finished."
    )
    (call,) = cloudformation.update_stack.call_args_list
    assert json.loads(call.kwargs["TemplateBody"]) == FIXED
    cloudformation.get_waiter.return_value.wait.assert_called_once_with(StackName="Production-S")


@pytest.mark.parametrize(
    ("template", "instance_type", "line"),
    [
        (SCALES, "ml.g4dn.xlarge", "Production-S stays on ml.g4dn.xlarge."),
        (FIXED, "ml.g5.xlarge", "Production-S has no endpoint that scales."),
    ],
)
def test_another_stack_is_left_unchanged(template: dict[str, Any], instance_type: str, line: str) -> None:
    cloudformation, sagemaker = clients(template)
    assert pause("Production-S", instance_type, cloudformation, sagemaker) == line
    cloudformation.update_stack.assert_not_called()


@pytest.mark.parametrize(("code", "exists"), [("ValidationError", False), ("AccessDenied", True)])
def test_only_a_stack_that_does_not_exist_is_left_out(code: str, exists: bool) -> None:
    cloudformation, sagemaker = clients(SCALES)
    cloudformation.describe_stacks.side_effect = ClientError({"Error": {"Code": code, "Message": ""}}, "DescribeStacks")
    if exists:
        with pytest.raises(ClientError):
            pause("Production-S", "ml.g5.xlarge", cloudformation, sagemaker)
    else:
        assert pause("Production-S", "ml.g5.xlarge", cloudformation, sagemaker) == "Production-S is not deployed yet."
