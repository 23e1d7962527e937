"""The whole template: unchanged without notice, the same twice, and sound to cdk-nag, cfn-lint and botocore."""

import json
import re
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_iam as iam
from botocore.model import ListShape, MapShape, Shape, StringShape, StructureShape
from botocore.validate import ParamValidator
from cfnlint.api import lint  # type: ignore[import-untyped]

from app import add_stacks
from tests.stacks.cloudformation import filled
from tests.stacks.miniature import Repository, Synthesis, candidate, cdk_context
from tests.stacks.nag import nag_findings

SNAPSHOT = Path(__file__).parent / "snapshots" / "SpellcheckStack.template.json"


def test_the_template_is_the_one_last_reviewed(measured: Synthesis) -> None:
    """A difference rewrites the snapshot and fails: read the diff, then run again."""
    actual = masked(measured.json)
    expected = SNAPSHOT.read_text("utf-8") if SNAPSHOT.exists() else ""
    if actual != expected:
        SNAPSHOT.parent.mkdir(exist_ok=True)
        SNAPSHOT.write_text(actual, "utf-8")
    assert actual == expected, f"{SNAPSHOT} was rewritten: review the difference"


def test_two_syntheses_give_one_template(repository: Repository) -> None:
    repository.recommend(candidate())
    assert json.dumps(repository.synthesise().json) == json.dumps(repository.synthesise().json)


@pytest.mark.parametrize("environment", [None, Environment(account="123456789012", region="eu-west-1")])
def test_cdk_nag_finds_nothing_unanswered(repository: Repository, environment: Environment | None) -> None:
    repository.recommend(candidate())
    app = App(outdir=str(repository.root / "cdk.out"), context=cdk_context())
    add_stacks(app, repository.root, environment)
    assert nag_findings(app) == []


def test_cdk_nag_would_have_found_a_wildcard(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    role = iam.Role(Stack(app, "Stack"), "Role", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))
    role.add_to_policy(iam.PolicyStatement(actions=["s3:GetObject"], resources=["*"]))
    assert nag_findings(app) == ["AwsSolutions-IAM5[Resource::*]"]


@pytest.mark.parametrize("name", ["measured", "unmeasured"])
def test_cfn_lint_has_neither_errors_nor_warnings(name: str, request: pytest.FixtureRequest) -> None:
    synthesis: Synthesis = request.getfixturevalue(name)
    assert [str(match) for match in lint(json.dumps(synthesis.json), regions=["us-east-1", "eu-west-1"])] == []


def test_each_sagemaker_block_is_a_valid_api_call(measured: Synthesis) -> None:
    model, config, endpoint = (measured.only(f"AWS::SageMaker::{x}") for x in ("Model", "EndpointConfig", "Endpoint"))
    assert problems("sagemaker", "CreateModel", {"ModelName": "m", **model}) == []
    assert problems("sagemaker", "CreateEndpointConfig", {"EndpointConfigName": "c", **config}) == []
    # RetainAllVariantProperties is of updates only; the rest is what creating takes.
    assert problems("sagemaker", "UpdateEndpoint", {"EndpointName": "e", **endpoint}) == []
    del endpoint["RetainAllVariantProperties"]
    assert problems("sagemaker", "CreateEndpoint", {"EndpointName": "e", **endpoint}) == []


def test_a_gpu_variant_is_a_valid_api_call(repository: Repository) -> None:
    repository.host(instance_types=["ml.g5.xlarge"])
    config = repository.synthesise().only("AWS::SageMaker::EndpointConfig")
    assert problems("sagemaker", "CreateEndpointConfig", {"EndpointConfigName": "c", **config}) == []


def test_each_scaling_block_is_a_valid_api_call(measured: Synthesis) -> None:
    target = measured.only("AWS::ApplicationAutoScaling::ScalableTarget")
    policy = measured.only("AWS::ApplicationAutoScaling::ScalingPolicy")
    del policy["ScalingTargetId"]
    of_target = {key: target[key] for key in ("ServiceNamespace", "ResourceId", "ScalableDimension")}
    assert problems("application-autoscaling", "RegisterScalableTarget", target) == []
    assert problems("application-autoscaling", "PutScalingPolicy", {**of_target, **policy}) == []


def test_each_alarm_and_the_dashboard_are_valid_api_calls(measured: Synthesis) -> None:
    alarms = measured.template.find_resources("AWS::CloudWatch::Alarm").values()
    assert len(alarms) == 3
    for alarm in alarms:
        assert problems("cloudwatch", "PutMetricAlarm", {"AlarmName": "a", **alarm["Properties"]}) == []
    dashboard = measured.only("AWS::CloudWatch::Dashboard")
    assert problems("cloudwatch", "PutDashboard", {"DashboardName": "d", **dashboard}) == []


def test_the_check_of_api_calls_sees_a_wrong_type_and_a_wrong_word() -> None:
    variant = {"VariantName": "v", "InstanceType": "ml.g9.xlarge", "InitialInstanceCount": "1"}
    wrong = problems("sagemaker", "CreateEndpointConfig", {"EndpointConfigName": "c", "ProductionVariants": [variant]})
    assert any("InitialInstanceCount" in problem for problem in wrong)
    assert "ml.g9.xlarge is not one of ProductionVariantInstanceType" in wrong


def masked(template: dict[str, Any]) -> str:
    """Without the archive's hash, and without sagemaker-core's list of regions: neither is decided here."""
    mappings = dict.fromkeys(template["Mappings"], "<registry accounts by region>")
    text = json.dumps({**template, "Mappings": mappings}, indent=1, sort_keys=True, ensure_ascii=False)
    return re.sub(r"\b[0-9a-f]{64}\b", "<sha256>", text) + "\n"


def problems(service: str, operation: str, properties: dict[str, Any]) -> list[str]:
    """What botocore has against `properties` as the input of `operation`, words outside an enum included."""
    shape = botocore.session.get_session().get_service_model(service).operation_model(operation).input_shape
    assert shape is not None
    given = filled(properties)
    report = ParamValidator().validate(given, shape)
    found = report.generate_report().splitlines() if report.has_errors() else []
    return found + list(wrong_words(given, shape))


def wrong_words(value: Any, shape: Shape) -> list[str]:
    if isinstance(shape, StructureShape) and isinstance(value, dict):
        return [word for key in value if key in shape.members for word in wrong_words(value[key], shape.members[key])]
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [word for item in value for word in wrong_words(item, shape.member)]
    if isinstance(shape, MapShape) and isinstance(value, dict):
        return [word for item in value.values() for word in wrong_words(item, shape.value)]
    if isinstance(shape, StringShape) and shape.enum and value not in shape.enum:
        return [f"{value} is not one of {shape.name}"]
    return []
