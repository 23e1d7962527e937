"""The template of every workload: unchanged without notice, the same twice, and sound to cdk-nag and cfn-lint.

All that these and CDK's own checks read is in this file: their rules are loaded in seconds, once for a process.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, CfnResource, Environment, Stack, Stage
from aws_cdk import aws_iam as iam

from stacks.app import add_all
from tests.stacks.miniature import Repository, Synthesis, as_committed, candidate, recommend_for_production
from tests.stacks.release.conftest import CONNECTION, VIRGINIA, release
from tests.stacks.templates import SNAPSHOTS, assert_is_snapshot, cdks_own_checks, lint_matches, make_app, nag_findings
from tests.stacks.test_paging import paging

CDKS_OWN = {"W3005"}
"""A DependsOn beside a reference that implies it."""


def test_the_template_is_the_one_last_reviewed(committed: Synthesis) -> None:
    assert_is_snapshot(committed.stack.stack_name, masked(committed.json))


@pytest.mark.parametrize("file", sorted(SNAPSHOTS.glob("*.json")), ids=lambda file: file.name.partition(".")[0])
def test_a_role_is_passed_to_one_service_alone(file: Path) -> None:
    """Reads the templates last reviewed. A denial of all other services is as good as a grant with a condition."""
    resources = json.loads(file.read_text("utf-8"))["Resources"].values()
    for policy in (r["Properties"]["PolicyDocument"] for r in resources if r["Type"] == "AWS::IAM::Policy"):
        passing = [s for s in policy["Statement"] if "iam:PassRole" in s["Action"]]
        denied = [s["Condition"]["StringNotEquals"] for s in passing if s["Effect"] == "Deny"]
        for statement in passing:
            conditions = statement.get("Condition", {}).get("StringEquals")
            assert statement["Effect"] == "Deny" or conditions or denied, statement
        for condition in denied:
            assert condition == {"iam:PassedToService": "ecs-tasks.amazonaws.com"}


def test_two_syntheses_give_one_template(repository: Repository) -> None:
    repository.recommend(candidate())
    assert json.dumps(repository.synthesise().json) == json.dumps(repository.synthesise().json)


def test_cdk_nag_has_no_unanswered_finding(committed: Synthesis) -> None:
    assert nag_findings(committed.app) == []


def test_cdk_nag_has_no_unanswered_finding_with_every_option_of_an_endpoint(everything: Synthesis) -> None:
    assert nag_findings(everything.app) == []


def test_cdk_nag_has_no_unanswered_finding_in_a_region(repository: Repository) -> None:
    repository.recommend(candidate())
    assert nag_findings(repository.app(Environment(account="123456789012", region="eu-west-1"))) == []


def test_cdk_nag_has_no_unanswered_finding_in_what_pages(tmp_path: Path) -> None:
    assert nag_findings(paging(tmp_path)) == []


@pytest.fixture(scope="module")
def releasing(tmp_path_factory: pytest.TempPathFactory) -> App:
    """The release of one workload that has every kind of step. test_scanners.py, which is slow, has all workloads."""
    repository = as_committed(tmp_path_factory.mktemp("releasing"), "question_answering")
    recommend_for_production(repository)
    return release(repository.root)


def test_cdk_nag_has_no_unanswered_finding_in_a_release(releasing: App) -> None:
    assert nag_findings(releasing) == []


def test_a_release_pays_for_cdks_own_checks_of_the_templates(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stacks.app.CloudFormationValidatePlugin", cdks_own_checks)
    context = {"release-repository": "example/models", "release-connection": CONNECTION}
    app = make_app(repository.root / "cdk.out", context)
    assert add_all(app, repository.root, VIRGINIA, ["synth", "--quiet"]) == 0
    app.synth()
    assert (repository.root / "cdk.out/validation-report.json").exists()


@pytest.mark.parametrize("release", [False, True], ids=["in a stack", "in a stage of a release"])
def test_the_check_with_cdk_nag_sees_a_wildcard(tmp_path: Path, release: bool) -> None:
    app = make_app(tmp_path)
    scope = Stage(app, "Beta") if release else app
    role = iam.Role(Stack(scope, "Stack"), "Role", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))
    role.add_to_policy(iam.PolicyStatement(actions=["s3:GetObject"], resources=["*"]))
    assert nag_findings(app) == ["AwsSolutions-IAM5[Resource::*]"]


def test_cdks_own_checks_see_a_property_that_does_not_exist(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    CfnResource(Stack(app, "Stack"), "Key", type="AWS::KMS::Key", properties={"Rotation": True})
    assert nag_findings(app) == ["F3002"]


def test_cfn_lint_has_neither_errors_nor_warnings(committed: Synthesis) -> None:
    matches = lint_matches(committed.json, "us-east-1", "eu-west-1")
    assert [str(match) for match in matches if match.rule.id not in CDKS_OWN] == []


def test_cfn_lint_has_neither_errors_nor_warnings_with_every_option_of_an_endpoint(everything: Synthesis) -> None:
    assert [str(match) for match in lint_matches(everything.json, "us-east-1")] == []


def test_cfn_lint_has_neither_errors_nor_warnings_in_a_release(releasing: App) -> None:
    """Ignores what CDK Pipelines writes itself: a DependsOn more than needed, a Join in place of a Sub."""
    template = releasing.synth().get_stack_by_name("QuestionAnsweringReleaseStack").template
    style = ("dependency already enforced", "Prefer using Fn::Sub over Fn::Join")
    matches = lint_matches(template, "us-east-1")
    assert [str(match) for match in matches if not any(words in match.message for words in style)] == []


def masked(template: dict[str, Any]) -> str:
    """Returns the text without the archive's hash and sagemaker-core's list of regions: neither is decided here."""
    shown = {**template}
    if "Mappings" in shown:
        shown["Mappings"] = dict.fromkeys(template["Mappings"], "<registry accounts by region>")
    text = json.dumps(shown, indent=1, sort_keys=True, ensure_ascii=False)
    return re.sub(r"\b[0-9a-f]{64}\b", "<sha256>", text) + "\n"


@pytest.mark.parametrize("file", sorted(SNAPSHOTS.glob("*.json")), ids=lambda file: file.name.partition(".")[0])
def test_what_checkov_finds_is_answered_in_the_template(file: Path) -> None:
    """Reads the templates last reviewed. These are the rules of checkov that they do not all keep; it runs apart."""
    for name, resource in json.loads(file.read_text("utf-8"))["Resources"].items():
        has, answers = resource.get("Properties", {}), resource.get("Metadata", {}).get("checkov", {"skip": []})["skip"]
        assert all(answer["comment"].endswith(".") for answer in answers)
        attributes = json.dumps(has.get("LoadBalancerAttributes", []))
        lacking = {
            "AWS::Logs::LogGroup": {"CKV_AWS_158": "KmsKeyId" not in has},
            "AWS::S3::Bucket": {
                "CKV_AWS_18": "LoggingConfiguration" not in has,
                "CKV_AWS_21": "VersioningConfiguration" not in has,
            },
            "AWS::ElasticLoadBalancingV2::LoadBalancer": {"CKV_AWS_91": "access_logs" not in attributes},
        }.get(resource["Type"])
        if lacking is not None:
            assert {answer["id"] for answer in answers} == {rule for rule, lacks in lacking.items() if lacks}, name
