"""Roles that SageMaker assumes, a model's execution role and a job's role, need what the work under them needs.

The roles are those of the endpoint stacks' templates, put into the moto of this process.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends

from local_aws.permissions.actions import ApiCall
from local_aws.permissions.enforced import CALLS_FILE, PermissionLog, ServiceRoles
from local_aws.sagemaker.recommendation_request import InstanceTest, RecommendationPlan, role_calls
from tests.builders import message_of
from tests.local_aws.conftest import BUCKET, IMAGE, SAGEMAKER, Clients, Endpoints, make_role, policy_document, put_alarm
from tests.local_aws.permissions.template_roles import WHERE, Template, refused
from workloads import ROOT, Unavailable

STACKS = ("SpellcheckStack", "TextClassificationStack", "QuestionAnsweringStack")
URL = "s3://bucket/models/model.tar.gz"
LOG_GROUP = "/aws/sagemaker/Endpoints/e"
ALL = {"Effect": "Allow", "Action": "*", "Resource": "*"}


def trust(principal: dict[str, str] = SAGEMAKER) -> str:
    return policy_document({"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"})


@pytest.fixture(params=STACKS)
def template(request: pytest.FixtureRequest) -> Template:
    return Template(ROOT / f"tests/stacks/snapshots/{request.param}.template.json")


@pytest.fixture
def service(tmp_path: Path) -> ServiceRoles:
    return ServiceRoles(PermissionLog(tmp_path / CALLS_FILE), WHERE.account_id, WHERE.region)


@pytest.fixture
def make() -> Iterator[Callable[[str, str], str]]:
    """Makes a role with a policy and a trust policy."""
    iam, names = iam_backends[DEFAULT_ACCOUNT_ID]["aws"], list[str]()

    def made(policy: str, trusting: str = trust()) -> str:
        names.append(f"service-role-{len(names)}")
        role = iam.create_role(names[-1], trusting, "/", None, "", [], None)
        role.put_policy("inline", policy)
        return role.arn

    yield made
    for name in names:
        iam.get_role(name).policies.clear()
        iam.delete_role(name)


@pytest.fixture
def put(template: Template, make: Callable[..., str]) -> Callable[..., str]:
    """Makes a role of the template, without the grants of one action."""

    def made(name: str, without: str = "") -> str:
        trusting = json.dumps(template.all_of("AWS::IAM::Role")[name]["AssumeRolePolicyDocument"])
        return make(template.document(name, without=without), trusting)

    return made


def failure(call: Callable[..., None], *arguments: Any) -> str:
    return message_of(Unavailable, call, *arguments)


def no_access(role: str, url: str = URL) -> str:
    return (
        f'Could not access model data at {url}. Please ensure that the role "{role}" exists and that its trust '
        'relationship policy allows the action "sts:AssumeRole" for the service principal "sagemaker.amazonaws.com". '
        'Also ensure that the role has "s3:GetObject" permissions and that the object is located in us-east-1.'
    )


def test_the_serving_role_fetches_its_model_and_a_missing_grant_is_named(
    template: Template, service: ServiceRoles, put: Callable[..., str], tmp_path: Path
) -> None:
    (model, *_) = template.all_of("AWS::SageMaker::Model").values()
    container, name = model["PrimaryContainer"], model["ExecutionRoleArn"].rpartition("/")[2]
    about = (container["ModelDataUrl"], container["Image"], LOG_GROUP)
    service.check_model(put(name), *about)
    assert failure(service.check_model, unreadable := put(name, "s3:GetObject*"), *about) == (
        no_access(unreadable, container["ModelDataUrl"])
    )
    assert "does not have BatchGetImage permission for the image: " in failure(
        service.check_model, put(name, "ecr:BatchGetImage"), *about
    )
    lines = [json.loads(line) for line in (tmp_path / CALLS_FILE).read_text().splitlines()]
    assert {each["by"] for each in lines} == {"sagemaker.amazonaws.com"}
    assert [each["action"] for each in lines if each["allowed"]][:5] == [
        "s3:GetObject",
        "ecr:GetAuthorizationToken",
        "ecr:BatchCheckLayerAvailability",
        "ecr:BatchGetImage",
        "ecr:GetDownloadUrlForLayer",
    ]


def test_a_guarded_update_needs_a_models_role_that_may_read_the_rollback_alarms(
    service: ServiceRoles, make: Callable[..., str]
) -> None:
    template = Template(ROOT / "tests/stacks/snapshots/SpellcheckStack.template.json")
    (endpoint,) = template.all_of("AWS::SageMaker::Endpoint").values()
    named = endpoint["DeploymentConfig"]["AutoRollbackConfiguration"]["Alarms"]
    alarms = [each["AlarmName"] for each in named]
    (model, *_) = template.all_of("AWS::SageMaker::Model").values()
    role = model["ExecutionRoleArn"].rpartition("/")[2]
    update = ("sagemaker:UpdateEndpoint", [ApiCall("cloudwatch", "DescribeAlarms", {"AlarmNames": alarms})])
    service.require(make(template.document(role)), *update)
    refused = make(template.document(role, without="cloudwatch:DescribeAlarms"))
    assert failure(service.require, refused, *update) == (
        f"User: arn:aws:sts::123456789012:assumed-role/{refused.rpartition('/')[2]}/SageMaker is not authorized to "
        f"perform: cloudwatch:DescribeAlarms on resource: arn:aws:cloudwatch:us-east-1:123456789012:alarm:{alarms[0]} "
        "because no identity-based policy allows the cloudwatch:DescribeAlarms action"
    )


def test_a_role_that_is_missing_or_does_not_trust_sagemaker_has_no_access(
    make: Callable[..., str], service: ServiceRoles
) -> None:
    unknown = "arn:aws:iam::123456789012:role/nowhere"
    for role in (unknown, make(policy_document(ALL), trust({"Service": "ecs-tasks.amazonaws.com"}))):
        assert failure(service.check_model, role, URL, IMAGE, LOG_GROUP) == no_access(role)


JOB = "sagemaker:CreateInferenceRecommendationsJob"


def job(template: Template, tests: int = 1, endpoints: tuple[str, ...] = (), **configured: str) -> list[ApiCall]:
    """Returns the calls of a job of the stack's workload."""
    (model, *_) = template.all_of("AWS::SageMaker::Model").values()
    (variants,) = (each["ProductionVariants"] for each in template.all_of("AWS::SageMaker::EndpointConfig").values())
    planned = RecommendationPlan(
        payload_url=f"s3://sagemaker-{WHERE.region}-{WHERE.account_id}/inference-recommender/w/payload.tar.gz",
        content_type="application/json",
        traffic_pattern={},
        stopping_conditions={},
        duration_s=60,
        endpoints=endpoints,
        tests=(InstanceTest(instance_type="ml.c5.xlarge", inference_specification=None, environment={"A": "1"}),)
        * tests,
    )
    configuration = {"ModelName": variants[0]["ModelName"], **configured}
    return list(role_calls(configuration, planned, model["ExecutionRoleArn"]))


def role_of(template: Template, beginning: str) -> str:
    (name,) = (each for each in template.all_of("AWS::IAM::Role") if each.startswith(beginning))
    return name


MISSING = (
    *("s3:GetObject*", "sagemaker:DescribeModel", "sagemaker:CreateModel", "sagemaker:CreateEndpoint"),
    *("sagemaker:CreateEndpointConfig", "sagemaker:InvokeEndpoint", "sagemaker:DeleteEndpoint"),
    *("cloudwatch:GetMetricData", "iam:PassRole"),
)


def test_the_recommenders_role_does_what_a_job_does_and_a_missing_grant_is_named(
    template: Template, service: ServiceRoles, put: Callable[..., str]
) -> None:
    name, planned = role_of(template, "RecommenderRole"), job(template)
    service.require(put(name), JOB, planned)
    for action in MISSING:
        message = failure(service.require, put(name, action), JOB, planned)
        assert f"is not authorized to perform: {action.rstrip('*')} on resource: " in message
    by_key = job(template, VolumeKmsKeyId=f"arn:aws:kms:{WHERE.region}:{WHERE.account_id}:key/another")
    assert "is not authorized to perform: kms:CreateGrant" in failure(service.require, put(name), JOB, by_key)


def test_a_job_that_tests_an_endpoint_needs_that_one_alone(make: Callable[..., str], service: ServiceRoles) -> None:
    template = Template(ROOT / "tests/stacks/snapshots/SpellcheckStack.template.json")
    planned = job(template, tests=0, endpoints=("production",))
    endpoint = "arn:aws:sagemaker:us-east-1:123456789012:endpoint/production"
    few = [{**ALL, "Action": ["s3:*", "sagemaker:DescribeModel", "cloudwatch:*"]}]
    assert f"sagemaker:DescribeEndpoint on resource: {endpoint}" in failure(
        service.require, make(policy_document(*few)), JOB, planned
    )
    own = {**ALL, "Action": ["sagemaker:DescribeEndpoint", "sagemaker:InvokeEndpoint"], "Resource": endpoint}
    service.require(make(policy_document(*few, own)), JOB, planned)


def test_a_shard_reads_its_model_and_no_other_asset() -> None:
    template = Template(ROOT / "tests/stacks/snapshots/DuplicatesStack.template.json")
    tasks = template.all_of("AWS::ECS::TaskDefinition")
    (task,) = (each for name, each in tasks.items() if name.startswith("ShardTask"))
    (url,) = re.findall(r"--model s3://(\S+)", task["ContainerDefinitions"][0]["Command"][2])
    bucket, _, key = url.partition("/")
    policy = template.document(task["TaskRoleArn"])
    assert refused(policy, [ApiCall("s3", "GetObject", {"Bucket": bucket, "Key": key})]) == []
    other = ApiCall("s3", "GetObject", {"Bucket": bucket, "Key": "template.json"})
    assert refused(policy, [other]) == [f"s3:GetObject on arn:aws:s3:::{bucket}/template.json"]


@pytest.mark.integration
def test_an_endpoint_whose_model_cannot_be_read_is_failed(client: Clients, endpoints: Endpoints) -> None:
    role = make_role(client("iam"), "reads-nothing")
    described = endpoints.settled(endpoints.create("unread", config=endpoints.config("unread", role=role)))
    reason = no_access(role, f"s3://{BUCKET}/echo.tar.gz")
    assert (described["EndpointStatus"], described["FailureReason"]) == ("Failed", reason)


@pytest.mark.integration
def test_a_guarded_endpoint_whose_role_may_not_read_its_alarms_is_failed(client: Clients, endpoints: Endpoints) -> None:
    config = endpoints.config("unwatched", role=make_role(client("iam"), "reads-no-alarm"))
    put_alarm(client("cloudwatch"), "unread")
    alarms = {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "unread"}]}}
    described = endpoints.settled(endpoints.create("unwatched", config=config, DeploymentConfig=alarms))
    assert described["EndpointStatus"] == "Failed"
    assert "is not authorized to perform: cloudwatch:DescribeAlarms on resource: " in described["FailureReason"]
    client("cloudwatch").delete_alarms(AlarmNames=["unread"])
