"""The roles of a release's steps may do what they need, beyond what they are kept from."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from inference_recommender.cli.deployed import group_request
from stacks.app import add_releases
from stacks.context import ReleaseSource, read_release
from tests.builders import known, message_of
from tests.stacks.miniature import as_committed
from tests.stacks.release.conftest import CONNECTION, ENDPOINTS, ON_NEURON, VIRGINIA, WORKLOADS
from tests.stacks.release.test_release_pipeline import projects_of, statements_of
from tests.stacks.templates import make_app
from workloads import UsageError, load_workload

Granted = dict[str, dict[str, dict[str, str]]]
BUCKET = "sagemaker-<AWS::Region>-<AWS::AccountId>"


@pytest.fixture(scope="module")
def granted(templates: dict[str, dict[str, Any]]) -> Granted:
    """The resources of each action, one a line, by workload and the logical id of the step's project."""

    def of(template: dict[str, Any], role: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for statement in statements_of(template, role):
            for action in statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]:
                found[action] = found.get(action, "") + as_text(statement["Resource"]) + "\n"
        return found

    return {
        workload: {
            name: of(template, project["ServiceRole"]["Fn::GetAtt"][0])
            for name, project in projects_of(template).items()
        }
        for workload, template in templates.items()
    }


def as_text(value: Any) -> str:
    match value:
        case list():
            return "\n".join(map(as_text, value))
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(map(as_text, parts))
        case {"Ref": name} | {"Fn::GetAtt": [name, _]}:
            return f"<{name}>"
        case _:
            return str(value)


def step(granted: Granted, kind: str, workload: str) -> dict[str, str]:
    (found,) = (grants for name, grants in granted[workload].items() if re.search(f"{kind}[0-9A-F]{{8}}$", name))
    return found


@pytest.mark.parametrize("workload", ENDPOINTS)
def test_a_job_gets_betas_role_by_its_full_path(workload: str, app: App, granted: Granted) -> None:
    stack_name = f"Beta-{workload.title().replace('_', '')}Stack"
    assert f":role/inference-recommender/{stack_name}/*" in step(granted, "Measure", workload)["iam:PassRole"]
    nested = app.synth().nested_assemblies
    (beta,) = (each for each in nested if each.display_name == f"{stack_name[5:-5]}ReleaseStack/Beta")
    resources = beta.nested_assembly.get_stack_by_name(stack_name).template["Resources"]
    (role,) = (
        r["Properties"]
        for name, r in resources.items()
        if name.startswith("RecommenderRole") and r["Type"] == "AWS::IAM::Role"
    )
    assert role["Path"] == f"/inference-recommender/{stack_name}/"


def test_an_endpoint_that_no_job_can_start_is_measured_directly(
    templates: dict[str, dict[str, Any]], granted: Granted
) -> None:
    """A job's hosts of ml.g4dn start with too old a driver; beta's variant names an AMI."""
    projects = projects_of(templates["text_classification"])
    (project,) = (project for name, project in projects.items() if "Measure" in name)
    assert 'measure_endpoint.sh text_classification \\"$ENDPOINT\\" trt-db-ig' in as_text(
        project["Source"]["BuildSpec"]
    )
    grants = step(granted, "Measure", "text_classification")
    for action in ("InvokeEndpoint", "DescribeEndpoint", "ListTags"):
        assert ":endpoint/beta-textclassificationstack\n" in grants[f"sagemaker:{action}"]
    assert ":endpoint-config/*\n" in grants["sagemaker:DescribeEndpointConfig"]
    assert ":model/*\n" in grants["sagemaker:DescribeModel"]
    assert grants["application-autoscaling:DescribeScalableTargets"] == "*\n"
    assert "sagemaker:DescribeEndpointConfig" not in step(granted, "Measure", "spellcheck")


def test_a_service_is_measured_by_betas_project_in_its_vpc(
    app: App, templates: dict[str, dict[str, Any]], granted: Granted
) -> None:
    projects = projects_of(templates["query_intent"])
    (project,) = (project for name, project in projects.items() if "Measure" in name)
    assert (
        'measure_in_vpc.sh query_intent Beta-QueryIntentStack-Measure \\"$URL\\" inf1.6xlarge s3://<Releases>/'
        "measurements/query_intent <AccessAsk"
    ) in re.sub(r"<Releases\w+>", "<Releases>", as_text(project["Source"]["BuildSpec"]))
    (beta,) = (each for each in app.synth().nested_assemblies if each.display_name == "QueryIntentReleaseStack/Beta")
    resources = beta.nested_assembly.get_stack_by_name("Beta-QueryIntentStack").template["Resources"].values()
    (started,) = (each["Properties"] for each in resources if each["Type"] == "AWS::CodeBuild::Project")
    assert started["Name"] == "Beta-QueryIntentStack-Measure"


def test_the_build_in_a_vpc_has_the_steps_role_and_needs_no_other(granted: Granted) -> None:
    """It is started with the role of the step, whose S3 folder it reads and writes."""
    grants = step(granted, "Measure", "query_intent")
    for action in ("StartBuild", "BatchGetBuilds"):
        assert ":project/Beta-QueryIntentStack-Measure\n" in grants[f"codebuild:{action}"]
    assert re.fullmatch(r"<AccessAsk\w+>\n", grants["iam:PassRole"])
    for action in ("s3:GetObject*", "s3:PutObject", "s3:DeleteObject*"):
        assert "/measurements/query_intent/*" in grants[action]
    # https://docs.aws.amazon.com/codebuild/latest/userguide/auth-and-access-control-iam-identity-based-access-control.html
    for action in ("CreateNetworkInterface", "CreateNetworkInterfacePermission", "DeleteNetworkInterface"):
        assert ":network-interface/*" in grants[f"ec2:{action}"]
    for noun in ("DhcpOptions", "NetworkInterfaces", "SecurityGroups", "Subnets", "Vpcs"):
        assert grants[f"ec2:Describe{noun}"] == "*\n"
    assert ":log-group:/aws/codebuild/Beta-QueryIntentStack-Measure" in grants["logs:PutLogEvents"]


def test_what_is_recommended_is_proven_on_betas_endpoint_where_the_workload_asks_for_it(
    templates: dict[str, dict[str, Any]], granted: Granted
) -> None:
    assert {name for name, template in templates.items() if "prove.sh" in json.dumps(template)} == {
        "question_answering"
    }
    projects = projects_of(templates["question_answering"])
    (project,) = (project for name, project in projects.items() if "Measure" in name)
    spec = as_text(project["Source"]["BuildSpec"])
    assert spec.index("measure.sh") < spec.index('prove.sh question_answering \\"$ENDPOINT\\"')
    grants = step(granted, "Measure", "question_answering")
    for action in ("InvokeEndpoint", "DescribeEndpoint", "ListTags"):
        assert ":endpoint/beta-questionansweringstack\n" in grants[f"sagemaker:{action}"]
    assert ":model/*\n" in grants["sagemaker:DescribeModel"]
    assert "sagemaker:DescribeModel" not in step(granted, "Measure", "spellcheck")


@pytest.mark.parametrize("workload", ENDPOINTS)
def test_payloads_have_a_bucket_and_a_failed_test_a_log(workload: str, granted: Granted) -> None:
    """Nothing else makes the bucket, which the job's role reads."""
    grants = step(granted, "Measure", workload)
    for action in ("s3:CreateBucket", "s3:PutBucketPublicAccessBlock"):
        assert f":s3:::{BUCKET}\n" in grants[action]
    assert f":s3:::{BUCKET}/inference-recommender/{workload}/*" in grants["s3:PutObject"]
    for group in ("InferenceRecommendationsJobs*", "Endpoints/sm-*", f"Endpoints/{workload.replace('_', '-')}-*"):
        assert f"/aws/sagemaker/{group}" in grants["logs:GetLogEvents"]
        assert f"/aws/sagemaker/{group}" in grants["logs:DescribeLogStreams"]


@pytest.mark.parametrize("workload", ENDPOINTS)
def test_a_jobs_own_scaling_policy_may_be_asked_for(workload: str, granted: Granted) -> None:
    """The recommendation shows it beside ours."""
    grants = step(granted, "Measure", workload)
    jobs = grants["sagemaker:DescribeInferenceRecommendationsJob"]
    assert grants["sagemaker:GetScalingConfigurationRecommendation"] == jobs


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_build_reads_the_log_of_its_jobs(workload: str, granted: Granted) -> None:
    """A job that fails is told with the last lines of its log."""
    grants = step(granted, "BuildModel", workload)
    for action in ("logs:DescribeLogStreams", "logs:GetLogEvents", "logs:PutLogEvents"):
        assert "log-group:/aws/sagemaker/ProcessingJobs*" in grants[action]


@pytest.mark.parametrize("workload", ON_NEURON)
def test_a_recording_makes_and_deletes_endpoints_of_its_workload_alone(workload: str, granted: Granted) -> None:
    grants, own = step(granted, "Record", workload), f"{workload.replace('_', '-')}-*"
    for noun, resource in (("Endpoint", "endpoint"), ("EndpointConfig", "endpoint-config"), ("Model", "model")):
        for verb in ("Create", "Delete"):
            assert f":{resource}/{own}\n" in grants[f"sagemaker:{verb}{noun}"]
    assert f"/recordings/{workload}/*" in grants["s3:PutObject"]
    assert "Record" in grants["iam:PassRole"]


def test_only_betas_endpoints_can_be_deleted(granted: Granted) -> None:
    for workload, steps in granted.items():
        may_delete = [g["cloudformation:DeleteStack"] for g in steps.values() if "cloudformation:DeleteStack" in g]
        assert len(may_delete) == (0 if workload == "duplicates" else 2), "Clear and TakeDown"
        for resources in may_delete:
            assert resources.endswith(f":stack/Beta-{workload.title().replace('_', '')}Stack/*\n")
            assert resources.count(":stack/") == 1


@pytest.mark.parametrize("workload", ENDPOINTS)
def test_a_release_registers_the_measured_model_in_the_group_of_the_workload_alone(
    workload: str, templates: dict[str, dict[str, Any]], granted: Granted
) -> None:
    """`register` uses the same group by default."""
    group = group_request(load_workload(workload).workload)["ModelPackageGroupName"]
    grants = step(granted, "Register", workload)
    assert grants["sagemaker:CreateModelPackageGroup"].endswith(f":model-package-group/{group}\n")
    assert grants["sagemaker:CreateModelPackage"].count(":model-package") == 2
    assert f":model-package/{group}/*\n" in grants["sagemaker:CreateModelPackage"]
    (project,) = (each for name, each in projects_of(templates[workload]).items() if "Register" in name)
    command = f'python -m inference_recommender register {workload} --set \\"recommender.model=$MODEL_NAME\\"'
    assert command in as_text(project["Source"]["BuildSpec"])


def test_the_approval_of_a_model_package_starts_a_release_if_it_is_set(tmp_path: Path) -> None:
    repository = as_committed(tmp_path, "text_classification")
    shutil.rmtree(tmp_path / "build")
    context = {"release-repository": "o/n", "release-connection": CONNECTION, "release-start": "push-and-approval"}
    source = known(read_release(context.get))
    app = make_app(tmp_path / "cdk.out")
    add_releases(app, repository.root, VIRGINIA, source)
    resources = app.synth().stacks[0].template["Resources"]
    (rule,) = (r["Properties"] for r in resources.values() if r["Type"] == "AWS::Events::Rule")
    assert rule["EventPattern"] == {
        "source": ["aws.sagemaker"],
        "detail-type": ["SageMaker Model Package State Change"],
        "detail": {"ModelPackageGroupName": ["text-classification"], "ModelApprovalStatus": ["Approved"]},
    }
    (target,) = rule["Targets"]
    (pipeline,) = (name for name, r in resources.items() if r["Type"] == "AWS::CodePipeline::Pipeline")
    assert target["Arn"]["Fn::Join"][1][-1] == {"Ref": pipeline}
    role = target["RoleArn"]["Fn::GetAtt"][0]
    (statement,) = statements_of({"Resources": resources}, role)
    assert (statement["Action"], statement["Resource"]) == ("codepipeline:StartPipelineExecution", target["Arn"])


def test_an_approval_in_another_account_cannot_start_a_release(tmp_path: Path) -> None:
    source = ReleaseSource(repository="o/n", connection_arn=CONNECTION, start="push-and-approval")
    app = make_app(tmp_path, {"beta-environment": "222233334444/us-east-1"})
    assert message_of(UsageError, add_releases, app, tmp_path, VIRGINIA, source) == (
        "cdk.json: context.release-start: got 'push-and-approval' with a beta-environment. Approvals are events of "
        "beta's account and region, and start only a pipeline there. Leave one of the two out."
    )
