"""A model's execution role and an Inference Recommender job's role are held to what the work that they do needs."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends

from local_aws.permissions.actions import ApiCall
from local_aws.permissions.enforced import CALLS_FILE, PermissionLog, RecommendationWork, ServiceRoles
from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import BUCKET, IMAGE, wait_until
from workloads import Unavailable

URL = "s3://bucket/models/model.tar.gz"
LOG_GROUP = "/aws/sagemaker/Endpoints/e"
SAGEMAKER = "arn:aws:sagemaker:us-east-1:123456789012"
KEY = "arn:aws:kms:us-east-1:123456789012:key/k"
SERVING = "arn:aws:iam::123456789012:role/serves"
Statement = dict[str, Any]


def allow(actions: list[str], resource: str = "*", **condition: Any) -> Statement:
    conditional = {"Condition": condition} if condition else {}
    return {"Effect": "Allow", "Action": actions, "Resource": resource, **conditional}


def document(*statements: Statement) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def trust(service: str = "sagemaker.amazonaws.com") -> str:
    return document({"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"})


REPOSITORY = "arn:aws:ecr:us-east-1:007439368137:repository/sagemaker-tritonserver"
OF_A_MODEL = {
    "archive": allow(["s3:GetObject"], "arn:aws:s3:::bucket/models/*"),
    "token": allow(["ecr:GetAuthorizationToken"]),
    "image": allow(["ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer", "ecr:BatchGetImage"], REPOSITORY),
    "log": allow(["logs:*"], "arn:aws:logs:us-east-1:123456789012:log-group:/aws/sagemaker/Endpoints/*"),
}
OF_A_JOB = {
    "payload": allow(["s3:GetObject"], "arn:aws:s3:::bucket/payloads/*"),
    "model": allow(["sagemaker:DescribeModel"], f"{SAGEMAKER}:model/m"),
    "configurations": allow(
        ["sagemaker:CreateEndpointConfig", "sagemaker:DeleteEndpointConfig", "sagemaker:CreateEndpoint"],
        f"{SAGEMAKER}:endpoint-config/sm-*",
    ),
    "endpoints": allow(
        [
            "sagemaker:CreateEndpoint",
            "sagemaker:DescribeEndpoint",
            "sagemaker:InvokeEndpoint",
            "sagemaker:DeleteEndpoint",
        ],
        f"{SAGEMAKER}:endpoint/sm-*",
    ),
    "metrics": allow(["cloudwatch:GetMetricData"]),
}
JOB = RecommendationWork(
    model=ApiCall("sagemaker", "DescribeModel", {"ModelName": "m"}),
    passed_role_arn=SERVING,
    payload_url="s3://bucket/payloads/p.tar.gz",
    temporary_endpoints=["sm-epc-1"],
    copies_model=False,
    tested_endpoints=[],
    key_id=None,
)


@pytest.fixture
def make() -> Iterator[Callable[..., str]]:
    """Makes a role in the moto of this process."""
    iam, names = iam_backends[DEFAULT_ACCOUNT_ID]["aws"], list[str]()

    def made(*statements: Statement, trusted: str | None = None) -> str:
        names.append(f"service-role-{len(names)}")
        role = iam.create_role(names[-1], trusted or trust(), "/", None, "", [], None)
        role.put_policy("inline", document(*statements or [{**allow(["*"]), "Effect": "Deny"}]))
        return role.arn

    yield made
    for name in names:
        iam.get_role(name).policies.clear()
        iam.delete_role(name)


@pytest.fixture
def service(tmp_path: Path) -> ServiceRoles:
    return ServiceRoles(PermissionLog(tmp_path / CALLS_FILE), DEFAULT_ACCOUNT_ID, "us-east-1")


def lines(folder: Path) -> list[tuple[str, str, bool]]:
    found = [json.loads(line) for line in (folder / CALLS_FILE).read_text().splitlines()]
    assert {each["by"] for each in found} == {"sagemaker.amazonaws.com"}
    return [(each["action"], each["resource"], each["allowed"]) for each in found]


def no_access(role: str) -> str:
    return (
        f'Could not access model data at {URL}. Please ensure that the role "{role}" exists and that its trust '
        'relationship policy allows the action "sts:AssumeRole" for the service principal "sagemaker.amazonaws.com". '
        'Also ensure that the role has "s3:GetObject" permissions and that the object is located in us-east-1.'
    )


def failure(call: Callable[..., None], *arguments: Any) -> str:
    with pytest.raises(Unavailable) as caught:
        call(*arguments)
    return str(caught.value)


def test_a_role_with_all_that_a_model_needs_is_asked_for_each_of_it(
    make: Callable[..., str], service: ServiceRoles, tmp_path: Path
) -> None:
    service.check_model(make(*OF_A_MODEL.values()), URL, IMAGE, LOG_GROUP)
    assert [action for action, _, allowed in lines(tmp_path) if allowed] == [
        "s3:GetObject",
        "ecr:GetAuthorizationToken",
        "ecr:BatchCheckLayerAvailability",
        "ecr:BatchGetImage",
        "ecr:GetDownloadUrlForLayer",
        "logs:CreateLogGroup",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
    ]


def test_a_model_whose_archive_its_role_may_not_read_fails_in_the_services_words(
    make: Callable[..., str], service: ServiceRoles, tmp_path: Path
) -> None:
    other = make(allow(["s3:GetObject"], "arn:aws:s3:::bucket/build/*"))
    assert failure(service.check_model, other, URL, IMAGE, LOG_GROUP) == no_access(other)
    assert lines(tmp_path) == [("s3:GetObject", "arn:aws:s3:::bucket/models/model.tar.gz", False)]
    unknown = "arn:aws:iam::123456789012:role/nowhere"
    assert failure(service.check_model, unknown, URL, IMAGE, LOG_GROUP) == no_access(unknown)
    for_tasks = make(allow(["*"]), trusted=trust("ecs-tasks.amazonaws.com"))
    assert failure(service.check_model, for_tasks, URL, IMAGE, LOG_GROUP) == no_access(for_tasks)


def test_a_model_without_a_log_starts_and_the_file_of_calls_says_so(
    make: Callable[..., str], service: ServiceRoles, tmp_path: Path
) -> None:
    service.check_model(make(*(OF_A_MODEL[name] for name in ("archive", "token", "image"))), URL, IMAGE, LOG_GROUP)
    assert lines(tmp_path)[-1] == (
        "logs:CreateLogGroup",
        f"arn:aws:logs:us-east-1:123456789012:log-group:{LOG_GROUP}:log-stream:model",
        False,
    )


def test_a_job_whose_role_lacks_a_grant_fails_and_names_it(make: Callable[..., str], service: ServiceRoles) -> None:
    service.check_job(make(*OF_A_JOB.values()), JOB)
    role = make(*(each for name, each in OF_A_JOB.items() if name != "payload"))
    assert failure(service.check_job, role, JOB) == (
        f"User: arn:aws:sts::123456789012:assumed-role/{role.rpartition('/')[2]}/SageMaker is not authorized to "
        "perform: s3:GetObject on resource: arn:aws:s3:::bucket/payloads/p.tar.gz because no identity-based policy "
        "allows the s3:GetObject action"
    )


def test_a_job_with_a_key_needs_to_grant_it_to_hosting(make: Callable[..., str], service: ServiceRoles) -> None:
    job = dataclasses.replace(JOB, key_id=KEY)
    assert "kms:CreateGrant on resource: arn:aws:kms:us-east-1:123456789012:key/k" in failure(
        service.check_job, make(*OF_A_JOB.values(), allow(["kms:Decrypt"], KEY)), job
    )
    for_aws = allow(["kms:CreateGrant"], KEY, Bool={"kms:GrantIsForAWSResource": "true"})
    service.check_job(make(*OF_A_JOB.values(), for_aws), job)
    by_id = dataclasses.replace(JOB, key_id="k")
    service.check_job(make(*OF_A_JOB.values(), for_aws), by_id)


def test_a_job_that_tests_an_endpoint_needs_that_one_alone(make: Callable[..., str], service: ServiceRoles) -> None:
    job = dataclasses.replace(JOB, temporary_endpoints=[], tested_endpoints=["production"])
    few = [OF_A_JOB[name] for name in ("payload", "model", "metrics")]
    assert f"sagemaker:DescribeEndpoint on resource: {SAGEMAKER}:endpoint/production" in failure(
        service.check_job, make(*few), job
    )
    own = allow(["sagemaker:DescribeEndpoint", "sagemaker:InvokeEndpoint"], f"{SAGEMAKER}:endpoint/production")
    service.check_job(make(*few, own), job)


@pytest.mark.integration
def test_an_endpoint_whose_model_cannot_be_read_is_failed(account: LocalAccount, client: Callable[[str], Any]) -> None:
    role = client("iam").create_role(RoleName="reads-nothing", AssumeRolePolicyDocument=trust())["Role"]["Arn"]
    sagemaker = boto3.client("sagemaker", **account.client_arguments())
    container = {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/echo.tar.gz"}
    sagemaker.create_model(ModelName="unreadable", ExecutionRoleArn=role, PrimaryContainer=container)
    variant: Any = {
        "VariantName": "v",
        "ModelName": "unreadable",
        "InstanceType": "ml.c5.xlarge",
        "InitialInstanceCount": 1,
    }
    sagemaker.create_endpoint_config(EndpointConfigName="unreadable", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="unreadable", EndpointConfigName="unreadable")
    settled = wait_until(
        lambda: (
            (found := sagemaker.describe_endpoint(EndpointName="unreadable"))["EndpointStatus"] != "Creating" and found
        )
    )
    assert (settled["EndpointStatus"], settled["FailureReason"]) == (
        "Failed",
        no_access(role).replace(URL, container["ModelDataUrl"]),
    )
    sagemaker.delete_endpoint(EndpointName="unreadable")
