"""Stages of a release in other accounts and regions, and the files that each step reads as its inputs.

`READS` says for each kind of step what its script and the commands in that read beside the repository's own files.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk.assertions import Annotations, Match
from aws_cdk.cx_api import CloudAssembly

from stacks.app import stage_environments
from stacks.context import read_environment
from tests.builders import message_of
from tests.stacks.miniature import as_committed, recommend_for_production
from tests.stacks.release.conftest import CONNECTION, ON_NEURON, VIRGINIA, all_actions, release, stages
from tests.stacks.release.test_release_pipeline import projects_of, statements_of
from tests.stacks.release.test_step_access import as_text
from tests.stacks.templates import nag_findings
from workloads import UsageError

PIPELINE, BETA, PRODUCTION = "123456789012", "222233334444", "111122223333"
OUTSIDE = {
    "Clear": ("Beta", BETA, "us-east-1"),
    "SmokeTest": ("Beta", BETA, "us-east-1"),
    "Measure": ("Beta", BETA, "us-east-1"),
    "Register": ("Beta", BETA, "us-east-1"),
    "TakeDown": ("Beta", BETA, "us-east-1"),
    "PauseScaling": ("Production", PRODUCTION, "eu-west-1"),
}
"""Stage, account and region of the steps that call another account."""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> App:
    """A release to beta in another account, and to production in a third one and another region."""
    repository = as_committed(tmp_path_factory.mktemp("elsewhere"), "question_answering")
    recommend_for_production(repository)
    environments = {"beta_environment": f"{BETA}/us-east-1", "production_environment": f"{PRODUCTION}/eu-west-1"}
    return release(repository.root, CONNECTION, **environments)


@pytest.fixture(scope="module")
def assembly(elsewhere: App) -> CloudAssembly:
    return elsewhere.synth()


@pytest.fixture(scope="module")
def pipeline(assembly: CloudAssembly) -> dict[str, Any]:
    return dict(assembly.get_stack_by_name("QuestionAnsweringReleaseStack").template)


def template(assembly: CloudAssembly, stage: str, stack: str) -> dict[str, Any]:
    (found,) = (each for each in assembly.nested_assemblies if each.display_name.endswith(f"/{stage}"))
    return dict(found.nested_assembly.get_stack_by_name(f"{stage}-{stack}").template)


def test_each_stage_is_deployed_to_its_account_and_region(assembly: CloudAssembly, pipeline: dict[str, Any]) -> None:
    deployed = {
        (stage["Name"], re.findall(r"\d{12}", as_text(action["RoleArn"]))[0], action.get("Region", "us-east-1"))
        for stage in stages(pipeline)
        for action in stage["Actions"]
        if action["Name"].endswith("Deploy")
    }
    assert [stage["Name"] for stage in stages(pipeline)][-4:] == [
        "BetaAccess",
        "Beta",
        "ProductionAccess",
        "Production",
    ]
    assert deployed == {
        ("BetaAccess", BETA, "us-east-1"),
        ("Beta", BETA, "us-east-1"),
        ("ProductionAccess", PRODUCTION, "eu-west-1"),
        ("Production", PRODUCTION, "eu-west-1"),
    }
    support = assembly.get_stack_by_name("QuestionAnsweringReleaseStack-support-eu-west-1")
    assert (support.environment.account, support.environment.region) == (PIPELINE, "eu-west-1")


def test_cdks_roles_of_the_stages_read_the_artifacts_and_publish_archives(pipeline: dict[str, Any]) -> None:
    text = json.dumps([r for r in pipeline["Resources"].values() if r["Type"] == "AWS::S3::BucketPolicy"])
    assert f"cdk-hnb659fds-deploy-role-{BETA}-us-east-1" in text
    (synth,) = (project for name, project in projects_of(pipeline).items() if "BuildSynth" in name)
    granted = json.dumps(statements_of(pipeline, synth["ServiceRole"]["Fn::GetAtt"][0]))
    assert {f"arn:*:iam::{account}:role/*" in granted for account in (PIPELINE, BETA, PRODUCTION)} == {True}


@pytest.mark.parametrize("step", OUTSIDE)
def test_a_step_works_as_a_role_of_the_stages_account(
    step: str, assembly: CloudAssembly, pipeline: dict[str, Any]
) -> None:
    """Its own role may assume that role, which trusts no other."""
    stage, account, region = OUTSIDE[step]
    (project,) = (each for name, each in projects_of(pipeline).items() if f"{stage}{step}" in name)
    role = str(project["ServiceRole"]["Fn::GetAtt"][0])
    (target,) = (as_text(s["Resource"]) for s in statements_of(pipeline, role) if s["Action"] == "sts:AssumeRole")
    assert f":iam::{account}:role/" in target
    spec = as_text(project["Source"]["BuildSpec"])
    assert f"aws configure set role_arn {target} --profile stage" in spec
    assert spec.index(f"export AWS_PROFILE=stage AWS_REGION={region}") < spec.index("scripts")
    name = pipeline["Resources"][role]["Properties"]["RoleName"]
    roles = template(assembly, f"{stage}Access", "QuestionAnsweringReleaseAccessStack")["Resources"].values()
    (trust,) = (
        r["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        for r in roles
        if r["Type"] == "AWS::IAM::Role" and target.endswith(f"/{r['Properties']['RoleName']}")
    )
    (statement,) = trust
    assert as_text(statement["Condition"]["ArnEquals"]["aws:PrincipalArn"]).endswith(f":{PIPELINE}:role/{name}")
    assert f":{PIPELINE}:root" in as_text(statement["Principal"]["AWS"])


def test_the_roles_of_beta_name_resources_of_its_account(assembly: CloudAssembly) -> None:
    made = template(assembly, "BetaAccess", "QuestionAnsweringReleaseAccessStack")
    arns = [as_text(s["Resource"]) for s in statements(made) if "cloudformation:DeleteStack" in s["Action"]]
    assert arns == [f"arn:<AWS::Partition>:cloudformation:us-east-1:{BETA}:stack/Beta-QuestionAnsweringStack/*"]


def statements(template: dict[str, Any]) -> list[dict[str, Any]]:
    policies = [r["Properties"] for r in template["Resources"].values() if r["Type"] == "AWS::IAM::Policy"]
    return [statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]]


def test_other_accounts_pull_the_images_of_the_pipeline(assembly: CloudAssembly, pipeline: dict[str, Any]) -> None:
    (repository,) = (r["Properties"] for r in pipeline["Resources"].values() if r["Type"] == "AWS::ECR::Repository")
    readers = as_text([s["Principal"]["AWS"] for s in repository["RepositoryPolicyText"]["Statement"]])
    assert all(f":{account}:root" in readers for account in (BETA, PRODUCTION))


def test_cdk_nag_has_no_unanswered_finding_with_stages_elsewhere(elsewhere: App) -> None:
    assert nag_findings(elsewhere) == []


def test_a_service_in_another_account_is_not_measured(tmp_path: Path) -> None:
    """A build would have to be in its VPC."""
    repository = as_committed(tmp_path, "query_intent")
    app = release(repository.root, CONNECTION, beta_environment=f"{BETA}/us-east-1")
    (beta,) = (stage for stage in stages(app.synth().stacks[0].template) if stage["Name"] == "Beta")
    assert {action["Name"] for action in beta["Actions"] if "." not in action["Name"]} == {"Clear", "TakeDown"}
    stack = app.node.find_child("QueryIntentReleaseStack")
    assert isinstance(stack, Stack)
    Annotations.from_stack(stack).has_warning(
        "/QueryIntentReleaseStack",
        Match.string_like_regexp(
            "query_intent is not measured in beta: an ECS service is measured only in the pipeline's account and "
            "region. Leave beta-environment out of cdk.json to measure it."
        ),
    )


def test_without_its_own_environment_a_stage_has_that_of_the_pipeline() -> None:
    given = {"production-environment": f"{PRODUCTION}/eu-west-1"}
    production = Environment(account=PRODUCTION, region="eu-west-1")
    assert stage_environments(given.get, VIRGINIA) == {"beta": VIRGINIA, "production": production}


def test_a_malformed_environment_is_rejected() -> None:
    for value in ("eu-west-1", "1234/eu-west-1", f"{BETA}/eu"):
        assert message_of(UsageError, read_environment, {"beta-environment": value}.get, "beta") == (
            f"cdk.json: context.beta-environment: got '{value}'. "
            "Write it as ACCOUNT/REGION, for example 111122223333/eu-west-1."
        )


def test_a_stage_elsewhere_needs_a_pipeline_of_a_known_account() -> None:
    assert message_of(UsageError, stage_environments, {"beta-environment": f"{BETA}/us-east-1"}.get, Environment()) == (
        "cdk.json: context.beta-environment: the account and region of the pipeline are unknown. "
        "Log in to AWS as the account of the pipeline, and set AWS_REGION."
    )


BUILD, IMAGES, RECORDED, RUN = "BUILD", "build/images", "recorded", "runs/candidate"
READS = {
    "Check": set(),
    "BuildModel": set(),
    "Images": set(),
    "Record": {BUILD, IMAGES},  # verify --on sagemaker: artifact.json and its archive; the image's digest
    "ParityGate": {BUILD},  # model_build verify; for Inferentia with RECORDED beside it
    "Synth": {BUILD, IMAGES},  # app.py: artifact.json, the archive and the digests of images
    "Clear": set(),
    "SmokeTest": set(),  # invoke: workload.toml and payloads.jsonl
    "Measure": {BUILD},  # run: artifact.json, whose sha256 the recommendation names, and its archive
    "PerformanceGate": {RUN},  # compare: two runs, of which S3 has the other
    "Register": set(),  # workload.toml and payloads.jsonl
    "Propose": {RUN},  # the recommendation and the report
    "TakeDown": set(),
    "PauseScaling": set(),  # recommendation.json
    "KeepBaseline": {RUN},
}


Steps = dict[str, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def steps(templates: dict[str, dict[str, Any]]) -> Steps:
    """The actions of each workload that run a script of this project, by name."""
    ours = {
        workload: {action["Name"]: action for action in all_actions(template) if action["Name"] in READS}
        for workload, template in templates.items()
    }
    assert set().union(*ours.values()) == READS.keys()
    return ours


def links(template: dict[str, Any], action: dict[str, Any]) -> dict[str, str]:
    """Returns where the step's build finds each of its further inputs, as its buildspec links them."""
    project = template["Resources"][action["Configuration"]["ProjectName"]["Ref"]]["Properties"]
    text = json.dumps(project["Source"]["BuildSpec"]).replace("\\", "")
    return dict(re.findall(r'ln -s -- "\$CODEBUILD_SRC_DIR_(\w+)" "([^"]+)"', text))


def test_every_step_has_what_it_reads_as_an_input(templates: dict[str, dict[str, Any]], steps: Steps) -> None:
    for workload, named in steps.items():
        for name, action in named.items():
            paths = links(templates[workload], action).values()
            found = {BUILD if path.startswith(f"build/{workload}/") else path for path in paths}
            expected = READS[name] | ({RECORDED} if name == "ParityGate" and workload in ON_NEURON else set())
            assert found == expected, (workload, name)


def test_every_input_is_linked_where_it_is_read_and_is_some_steps_output(
    templates: dict[str, dict[str, Any]], steps: Steps
) -> None:
    for workload, named in steps.items():
        actions = all_actions(templates[workload])
        made = {output["Name"] for action in actions for output in action.get("OutputArtifacts", [])}
        for name, action in named.items():
            first, *further = [each["Name"] for each in action["InputArtifacts"]]
            assert first == ("Clone" if name == "Propose" else "Source")
            assert set(links(templates[workload], action)) == set(further) <= made, (workload, name)


def test_a_pipeline_stays_within_codepipelines_limits(templates: dict[str, dict[str, Any]]) -> None:
    """Five inputs an action, 50 actions a stage. https://docs.aws.amazon.com/codepipeline/latest/userguide/limits.html"""
    for template in templates.values():
        assert max(len(action.get("InputArtifacts", [])) for action in all_actions(template)) <= 5
        assert max(len(stage["Actions"]) for stage in stages(template)) <= 50
