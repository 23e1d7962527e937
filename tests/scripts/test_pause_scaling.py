"""Steps of a release: archives leave the assembly, and scaling leaves a stack that changes its instance type."""

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError

from scripts.release.pause_scaling import pause
from scripts.release.publish_archives import MAX_ARTIFACT_BYTES, TooLarge, check_size, main
from tests.builders import a_program, message_of

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


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The calls of cdk-assets, which a stand-in notes."""
    calls = tmp_path / "calls"
    program = a_program(tmp_path / "bin" / "cdk-assets", f'printf "%s\\n" "$*" >> {calls}')
    calls.touch()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return calls


def test_archives_are_published_and_leave_the_assembly(
    tmp_path: Path, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = tmp_path / "cdk.out" / "assembly-Beta"
    stage.mkdir(parents=True)
    files = {
        "1.tar": {"source": {"path": "../asset.1.tar.gz"}, "destinations": {"here": {}}},
        "2": {"source": {"path": "Stack.template.json"}, "destinations": {"here": {}}},
    }
    manifest = stage / "Stack.assets.json"
    manifest.write_text(json.dumps({"files": files}))
    template, archive = stage / "Stack.template.json", stage.parent / "asset.1.tar.gz"
    template.write_text("{}")
    archive.write_bytes(b"archive")
    monkeypatch.setattr("sys.argv", ["publish_archives", str(stage.parent)])
    assert main() == 0
    assert published.read_text() == f"--path {manifest} --verbose publish 1.tar\n"
    assert (archive.exists(), template.exists()) == (False, True)


def test_an_assembly_over_codepipelines_limit_is_refused_before_anything_is_deployed(tmp_path: Path) -> None:
    large = tmp_path / "asset.weights.bin"
    with large.open("wb") as file:
        file.truncate(MAX_ARTIFACT_BYTES)
    check_size(tmp_path)
    (tmp_path / "Stack.template.json").write_text("{}")
    assert message_of(TooLarge, check_size, tmp_path) == (
        f"{tmp_path}: has 256.0 MB. CodePipeline passes at most 256.0 MB to CloudFormation. Nothing was deployed. Make "
        "the largest files smaller: asset.weights.bin (256.0 MB), Stack.template.json (0.0 MB)."
    )
