"""The roles of an endpoint's stack, as its template has them, can do what SageMaker does under them, and lack nothing.

One document for each role is put into the moto of this process, and asked as the local account asks it.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends

from local_aws.permissions.actions import ApiCall
from local_aws.permissions.enforced import CALLS_FILE, PermissionLog, RecommendationWork, ServiceRoles
from tests.local_aws.permissions.template_roles import WHERE, Template
from workloads import ROOT, Unavailable

STACKS = ("SpellcheckStack", "TextClassificationStack", "QuestionAnsweringStack")
ENDPOINT_LOG = "/aws/sagemaker/Endpoints/e"
Check = Callable[[], None]


@pytest.fixture(params=STACKS)
def template(request: pytest.FixtureRequest) -> Template:
    return Template(ROOT / f"tests/stacks/snapshots/{request.param}.template.json")


@pytest.fixture
def service(tmp_path: Path) -> ServiceRoles:
    return ServiceRoles(PermissionLog(tmp_path / CALLS_FILE), WHERE.account_id, WHERE.region)


@pytest.fixture
def put(template: Template) -> Iterator[Callable[..., str]]:
    """Puts a role of the template into moto, without the grants of one action, and returns its ARN."""
    iam, names = iam_backends[DEFAULT_ACCOUNT_ID]["aws"], list[str]()

    def made(name: str, without: str = "") -> str:
        properties = template.all_of("AWS::IAM::Role")[name]
        names.append(f"{name}-{len(names)}")
        trust = json.dumps(properties["AssumeRolePolicyDocument"])
        role = iam.create_role(names[-1], trust, "/", None, "", [], None)
        role.put_policy("template", template.document(name, without=without))
        return role.arn

    yield made
    for name in names:
        iam.get_role(name).policies.clear()
        iam.delete_role(name)


def role_of(template: Template, beginning: str) -> str:
    (name,) = (each for each in template.all_of("AWS::IAM::Role") if each.startswith(beginning))
    return name


def failure(check: Check) -> str:
    with pytest.raises(Unavailable) as caught:
        check()
    return str(caught.value)


def test_the_serving_role_fetches_its_model_and_a_missing_grant_is_named(
    template: Template, service: ServiceRoles, put: Callable[..., str]
) -> None:
    (model, *_) = template.all_of("AWS::SageMaker::Model").values()
    container, name = model["PrimaryContainer"], model["ExecutionRoleArn"].rpartition("/")[2]

    def fetched(without: str = "") -> Check:
        arn = put(name, without)
        return lambda: service.check_model(arn, container["ModelDataUrl"], container["Image"], ENDPOINT_LOG)

    fetched()()
    assert failure(fetched("s3:GetObject*")).startswith("Could not access model data at s3://cdk-")
    assert "does not have BatchGetImage permission for the image: " in failure(fetched("ecr:BatchGetImage"))


def job(template: Template, model: Any, **other: Any) -> RecommendationWork:
    """Returns what a job of the stack's workload does, named as the service names it."""
    (variants,) = (each["ProductionVariants"] for each in template.all_of("AWS::SageMaker::EndpointConfig").values())
    about = {
        "model": ApiCall("sagemaker", "DescribeModel", {"ModelName": variants[0]["ModelName"]}),
        "passed_role_arn": model["ExecutionRoleArn"],
        "payload_url": f"s3://sagemaker-{WHERE.region}-{WHERE.account_id}/inference-recommender/w/payload.tar.gz",
        "temporary_endpoints": ["sm-epc-uuid"],
        "copies_model": True,
        "tested_endpoints": [],
        "key_id": None,
    }
    return RecommendationWork(**{**about, **other})


MISSING = (
    "s3:GetObject*",
    "sagemaker:DescribeModel",
    "sagemaker:CreateModel",
    "sagemaker:CreateEndpoint",
    "sagemaker:CreateEndpointConfig",
    "sagemaker:InvokeEndpoint",
    "sagemaker:DeleteEndpoint",
    "cloudwatch:GetMetricData",
    "iam:PassRole",
)


def test_the_recommenders_role_does_what_a_job_does_and_a_missing_grant_is_named(
    template: Template, service: ServiceRoles, put: Callable[..., str]
) -> None:
    (model, *_) = template.all_of("AWS::SageMaker::Model").values()
    name, planned = role_of(template, "RecommenderRole"), job(template, model)
    service.check_job(put(name), planned)
    for action in MISSING:
        arn = put(name, action)
        refused = failure(lambda arn=arn: service.check_job(arn, planned))  # type: ignore[misc]
        assert f"is not authorized to perform: {action.rstrip('*')} on resource: " in refused


def test_a_key_that_the_workload_does_not_name_cannot_be_used_by_its_jobs(
    template: Template, service: ServiceRoles, put: Callable[..., str]
) -> None:
    (model, *_) = template.all_of("AWS::SageMaker::Model").values()
    planned = job(template, model, key_id=f"arn:aws:kms:{WHERE.region}:{WHERE.account_id}:key/another")
    arn = put(role_of(template, "RecommenderRole"))
    assert "is not authorized to perform: kms:CreateGrant" in failure(lambda: service.check_job(arn, planned))
