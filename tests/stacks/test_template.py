"""Whole templates: unchanged without notice, the same twice, and sound to cdk-nag, cfn-lint and botocore."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, CfnResource, Environment, Stack
from aws_cdk import aws_iam as iam
from cfnlint.api import lint

from tests.stacks.api_calls import problems
from tests.stacks.miniature import Repository, Synthesis, candidate
from tests.stacks.nag import nag_findings

SNAPSHOTS = Path(__file__).parent / "snapshots"


def test_the_template_is_the_one_last_reviewed(committed: Synthesis) -> None:
    """A difference rewrites the snapshot and fails: read the diff, then run again."""
    actual = masked(committed.json)
    file = SNAPSHOTS / f"{committed.stack.stack_name}.template.json"
    expected = file.read_text("utf-8") if file.exists() else ""
    if actual != expected:
        SNAPSHOTS.mkdir(exist_ok=True)
        file.write_text(actual, "utf-8")
    assert actual == expected, f"{file} was rewritten: review the difference"


def test_two_syntheses_give_one_template(repository: Repository) -> None:
    repository.recommend(candidate())
    assert json.dumps(repository.synthesise().json) == json.dumps(repository.synthesise().json)


def test_cdk_nag_finds_nothing_unanswered(committed: Synthesis) -> None:
    assert nag_findings(committed.app) == []


def test_cdk_nag_finds_nothing_unanswered_in_all_that_may_be(everything: Synthesis) -> None:
    assert nag_findings(everything.app) == []


def test_cdk_nag_finds_nothing_unanswered_in_a_region(repository: Repository) -> None:
    repository.recommend(candidate())
    assert nag_findings(repository.synthesise(Environment(account="123456789012", region="eu-west-1")).app) == []


def test_cdk_nag_would_have_found_a_wildcard(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    role = iam.Role(Stack(app, "Stack"), "Role", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))
    role.add_to_policy(iam.PolicyStatement(actions=["s3:GetObject"], resources=["*"]))
    assert nag_findings(app) == ["AwsSolutions-IAM5[Resource::*]"]


def test_cdks_own_checks_would_have_found_a_property_that_is_none(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    CfnResource(Stack(app, "Stack"), "Key", type="AWS::KMS::Key", properties={"Rotation": True})
    assert nag_findings(app) == ["F3002"]


def test_cfn_lint_has_neither_errors_nor_warnings(committed: Synthesis) -> None:
    assert lint_findings(committed, ["us-east-1", "eu-west-1"]) == []


def test_cfn_lint_has_neither_errors_nor_warnings_for_all_that_may_be(everything: Synthesis) -> None:
    assert lint_findings(everything, ["us-east-1"]) == []


@pytest.mark.parametrize("name", ["unmeasured", "measured", "everything"])
def test_each_sagemaker_block_is_a_valid_api_call(name: str, request: pytest.FixtureRequest) -> None:
    synthesis: Synthesis = request.getfixturevalue(name)
    for model in synthesis.template.find_resources("AWS::SageMaker::Model").values():
        assert problems("sagemaker", "CreateModel", {"ModelName": "m", **model["Properties"]}) == []
    config = synthesis.only("AWS::SageMaker::EndpointConfig")
    assert problems("sagemaker", "CreateEndpointConfig", {"EndpointConfigName": "c", **config}) == []
    endpoint = synthesis.only("AWS::SageMaker::Endpoint")
    # RetainAllVariantProperties is of updates only; the rest is what creating takes.
    assert problems("sagemaker", "UpdateEndpoint", endpoint) == []
    del endpoint["RetainAllVariantProperties"]
    assert problems("sagemaker", "CreateEndpoint", endpoint) == []


def test_the_blocks_of_each_committed_endpoint_are_valid_api_calls(committed: Synthesis) -> None:
    config, endpoint = (committed.only(f"AWS::SageMaker::{noun}") for noun in ("EndpointConfig", "Endpoint"))
    assert problems("sagemaker", "CreateEndpointConfig", {"EndpointConfigName": "c", **config}) == []
    assert problems("sagemaker", "UpdateEndpoint", endpoint) == []


@pytest.mark.parametrize("name", ["measured", "everything"])
def test_each_scaling_block_is_a_valid_api_call(name: str, request: pytest.FixtureRequest) -> None:
    synthesis: Synthesis = request.getfixturevalue(name)
    target = synthesis.only("AWS::ApplicationAutoScaling::ScalableTarget")
    of_target = {key: target[key] for key in ("ServiceNamespace", "ResourceId", "ScalableDimension")}
    for action in target.pop("ScheduledActions", []):
        assert problems("application-autoscaling", "PutScheduledAction", {**of_target, **action}) == []
    assert problems("application-autoscaling", "RegisterScalableTarget", target) == []
    policies = synthesis.template.find_resources("AWS::ApplicationAutoScaling::ScalingPolicy").values()
    assert policies
    for policy in policies:
        called = {**of_target, **policy["Properties"]}
        del called["ScalingTargetId"]
        assert problems("application-autoscaling", "PutScalingPolicy", called) == []


def test_each_alarm_and_the_dashboard_are_valid_api_calls(measured: Synthesis) -> None:
    alarms = measured.template.find_resources("AWS::CloudWatch::Alarm").values()
    assert len(alarms) == 7
    for alarm in alarms:
        assert problems("cloudwatch", "PutMetricAlarm", {"AlarmName": "a", **alarm["Properties"]}) == []
    composite = measured.only("AWS::CloudWatch::CompositeAlarm")
    assert problems("cloudwatch", "PutCompositeAlarm", composite) == []
    dashboard = measured.only("AWS::CloudWatch::Dashboard")
    assert problems("cloudwatch", "PutDashboard", {"DashboardName": "d", **dashboard}) == []


def test_the_check_of_api_calls_sees_a_wrong_type_and_a_wrong_word() -> None:
    variant = {"VariantName": "v", "InstanceType": "ml.g9.xlarge", "InitialInstanceCount": "1"}
    wrong = problems("sagemaker", "CreateEndpointConfig", {"EndpointConfigName": "c", "ProductionVariants": [variant]})
    assert any("InitialInstanceCount" in problem for problem in wrong)
    assert "ml.g9.xlarge is not one of ProductionVariantInstanceType" in wrong


def lint_findings(synthesis: Synthesis, regions: list[str]) -> list[str]:
    return [str(match) for match in lint(json.dumps(synthesis.json), regions=regions)]


def masked(template: dict[str, Any]) -> str:
    """Without the archive's hash, and without sagemaker-core's list of regions: neither is decided here."""
    shown = {**template}
    if "Mappings" in shown:
        shown["Mappings"] = dict.fromkeys(template["Mappings"], "<registry accounts by region>")
    text = json.dumps(shown, indent=1, sort_keys=True, ensure_ascii=False)
    return re.sub(r"\b[0-9a-f]{64}\b", "<sha256>", text) + "\n"
