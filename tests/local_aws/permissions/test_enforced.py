"""A session of a role may do what its policies allow, and SimulatePrincipalPolicy answers by the same policies."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local_aws.conftest import BUCKET, Clients, allow, policy_document, refused
from tests.local_aws.permissions.conftest import ACCOUNT, Roles

pytestmark = pytest.mark.integration


def message(role: str, action: str, resource: str, because: str = "") -> str:
    because = because or f"because no identity-based policy allows the {action} action"
    user = f"arn:aws:sts::{ACCOUNT}:assumed-role/{role}/session"
    return f"User: {user} is not authorized to perform: {action} on resource: {resource} {because}"


def test_a_session_may_do_what_its_role_allows_and_nothing_else(roles: Roles) -> None:
    clients = roles.clients(roles.role("reader", allow("s3:GetObject", resource=f"arn:aws:s3:::{BUCKET}/echo*")))
    s3 = clients("s3")
    assert s3.get_object(Bucket=BUCKET, Key="echo.tar.gz")["ContentLength"] > 0
    denied = message("reader", "s3:GetObject", f"arn:aws:s3:::{BUCKET}/payloads.tar.gz")
    assert refused(s3.get_object, Bucket=BUCKET, Key="payloads.tar.gz") == (403, "AccessDenied", denied)
    assert refused(s3.delete_object, Bucket=BUCKET, Key="echo.tar.gz")[1] == "AccessDenied"
    assert s3.get_object(Bucket=BUCKET, Key="echo.tar.gz")["ContentLength"] > 0, "not deleted"
    request = {"ModelName": "m", "ExecutionRoleArn": f"arn:aws:iam::{ACCOUNT}:role/reader"}
    denied = message("reader", "sagemaker:CreateModel", f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:model/m")
    assert refused(clients("sagemaker").create_model, **request) == (403, "AccessDeniedException", denied)


def test_a_change_of_the_policy_holds_from_the_next_call_on(roles: Roles) -> None:
    s3 = roles.clients(roles.role("changed", allow("s3:ListAllMyBuckets")))("s3")
    s3.list_buckets()
    roles.put("changed", allow("s3:ListAllMyBuckets"), {**allow("s3:*"), "Effect": "Deny"})
    assert refused(s3.list_buckets)[2] == message(
        "changed", "s3:ListAllMyBuckets", "*", "with an explicit deny in an identity-based policy"
    )
    roles.iam.delete_role_policy(RoleName="changed", PolicyName="inline")
    assert refused(s3.list_buckets)[2] == message("changed", "s3:ListAllMyBuckets", "*")


def test_a_managed_policy_of_aws_counts(roles: Roles) -> None:
    arn = roles.role("managed")
    roles.iam.attach_role_policy(RoleName="managed", PolicyArn="arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess")
    s3 = roles.clients(arn)("s3")
    s3.get_object(Bucket=BUCKET, Key="echo.tar.gz")
    assert refused(s3.put_object, Bucket=BUCKET, Key="k", Body=b"")[1] == "AccessDenied"


def test_a_role_is_passed_only_to_the_service_for_which_that_is_allowed(roles: Roles) -> None:
    wanted = f"arn:aws:iam::{ACCOUNT}:role/serving"
    to = {"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}}
    create = allow("sagemaker:CreateModel")
    clients = roles.clients(roles.role("passing", create, allow("iam:PassRole", resource=wanted, **to)))
    request = {"ModelName": "passed", "ExecutionRoleArn": wanted}
    assert refused(clients("sagemaker").create_model, **request)[2] == message("passing", "iam:PassRole", wanted)
    to = {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
    roles.put("passing", create, allow("iam:PassRole", resource=wanted, **to))
    container = {"Image": "image", "ModelDataUrl": f"s3://{BUCKET}/echo.tar.gz"}
    clients("sagemaker").create_model(**request, PrimaryContainer=container)


def test_who_may_assume_a_role_is_said_by_its_trust_policy_and_by_ones_own(roles: Roles) -> None:
    other = roles.role("trusts-account")
    named = roles.role("trusts-role", trusted={"AWS": f"arn:aws:iam::{ACCOUNT}:role/asking"})
    service = roles.role("trusts-service", trusted={"Service": "codebuild.amazonaws.com"})
    external = roles.role("wants-no-id", Null={"sts:ExternalId": "true"})
    asking = roles.clients(roles.role("asking"))("sts")
    assert refused(asking.assume_role, RoleArn=other, RoleSessionName="next") == (
        403,
        "AccessDenied",
        message("asking", "sts:AssumeRole", other),
    )
    roles.clients(named, asking)  # named by the role itself: no permission of its own is needed
    roles.put("asking", allow("sts:AssumeRole"))
    roles.clients(other, asking)
    roles.clients(external, asking)
    by_trust = "because no resource-based policy allows the sts:AssumeRole action"
    assert refused(asking.assume_role, RoleArn=service, RoleSessionName="next")[2] == message(
        "asking", "sts:AssumeRole", service, by_trust
    )
    assert refused(asking.assume_role, RoleArn=external, RoleSessionName="next", ExternalId="id")[2] == message(
        "asking", "sts:AssumeRole", external, by_trust
    )


def test_a_sessions_own_policy_limits_it(roles: Roles) -> None:
    arn = roles.role("limited", allow("s3:*"))
    only = policy_document(allow("s3:GetObject"))
    s3 = roles.clients(arn, Policy=only)("s3")
    s3.get_object(Bucket=BUCKET, Key="echo.tar.gz")
    assert refused(s3.list_buckets)[2] == message(
        "limited", "s3:ListAllMyBuckets", "*", "because no session policy allows the s3:ListAllMyBuckets action"
    )


def test_a_role_that_does_not_exist_has_no_session(roles: Roles) -> None:
    arn = f"arn:aws:iam::{ACCOUNT}:role/nowhere"
    assert refused(roles.sts.assume_role, RoleArn=arn, RoleSessionName="session") == (
        403,
        "AccessDenied",
        f"User: arn:aws:iam::{ACCOUNT}:root is not authorized to perform: sts:AssumeRole on resource: {arn} because no "
        "identity-based policy allows the sts:AssumeRole action",
    )


def test_a_call_or_a_condition_that_is_not_known_here_is_refused_and_says_so(roles: Roles) -> None:
    clients = roles.clients(roles.role("admin", allow("*")))
    assert clients("sts").get_caller_identity()["Arn"].endswith(":assumed-role/admin/session")
    begin = f"This local account cannot decide whether arn:aws:sts::{ACCOUNT}:assumed-role/admin/session may do this: "
    assert refused(clients("sagemaker").list_hubs) == (
        501,
        "NotImplemented",
        f"{begin}ListHubs of sagemaker has no row in local_aws/permissions/actions.toml.",
    )
    roles.put("admin", allow("*", Bool={"aws:MultiFactorAuthPresent": "true"}))
    assert refused(clients("sagemaker").list_models)[2] == (
        f"{begin}a policy of arn:aws:iam::{ACCOUNT}:role/admin cannot be evaluated: the condition key "
        "aws:multifactorauthpresent is not known to this local account."
    )


def test_an_object_under_a_key_of_kms_needs_that_key(roles: Roles, client: Clients) -> None:
    key = client("kms").create_key()["KeyMetadata"]["Arn"]
    client("s3").create_bucket(Bucket="under-a-key")
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}}
    client("s3").put_bucket_encryption(Bucket="under-a-key", ServerSideEncryptionConfiguration={"Rules": [rule]})
    client("s3").put_object(Bucket="under-a-key", Key="k", Body=b"x")
    s3 = roles.clients(roles.role("keyless", allow("s3:*")))("s3")
    assert refused(s3.get_object, Bucket="under-a-key", Key="k")[2] == message("keyless", "kms:Decrypt", key)
    via = {"StringEquals": {"kms:ViaService": "s3.us-east-1.amazonaws.com"}}
    roles.put("keyless", allow("s3:*"), allow("kms:Decrypt", resource=key, **via))
    assert s3.get_object(Bucket="under-a-key", Key="k")["Body"].read() == b"x"
    refused(s3.put_object, Bucket="under-a-key", Key="k", Body=b"y")


@pytest.fixture
def iam(client: Clients) -> Any:
    return client("iam")


@pytest.fixture
def role(roles: Roles) -> str:
    """May read a bucket's models, from one region only, and may delete nothing. Its ARN has a path."""
    made = roles.iam.create_role(Path="/ops/", RoleName="simulated", AssumeRolePolicyDocument=policy_document())
    roles.names.append("simulated")
    in_europe: Any = {"StringEquals": {"aws:RequestedRegion": "eu-west-1"}}
    reads, denied = allow("s3:Get*", resource="arn:aws:s3:::models/*"), {**allow("s3:Delete*"), "Effect": "Deny"}
    roles.put("simulated", reads, denied, allow("ec2:Describe*", **in_europe))
    return str(made["Role"]["Arn"])


def decisions(iam: Any, role: str, *actions: str, **request: Any) -> list[tuple[str, str, str]]:
    pages = iam.get_paginator("simulate_principal_policy").paginate(
        PolicySourceArn=role, ActionNames=list(actions), **request
    )
    results = [result for page in pages for result in page["EvaluationResults"]]
    return [(each["EvalActionName"], each["EvalResourceName"], each["EvalDecision"]) for each in results]


def test_each_action_is_answered_for_each_resource(iam: Any, role: str) -> None:
    files = ["arn:aws:s3:::models/a", "arn:aws:s3:::others/a"]
    assert decisions(iam, role, "s3:GetObject", "s3:DeleteObject", ResourceArns=files) == [
        ("s3:GetObject", files[0], "allowed"),
        ("s3:GetObject", files[1], "implicitDeny"),
        ("s3:DeleteObject", files[0], "explicitDeny"),
        ("s3:DeleteObject", files[1], "explicitDeny"),
    ]
    assert decisions(iam, role, "s3:GetObject") == [("s3:GetObject", "*", "implicitDeny")]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"PolicyInputList": ["{}"]}, "SimulatePrincipalPolicy with PolicyInputList"),
        (
            {"PolicySourceArn": "arn:aws:iam::123456789012:user/someone"},
            "SimulatePrincipalPolicy for arn:aws:iam::123456789012:user/someone, which is no role",
        ),
    ],
    ids=["policies", "user"],
)
def test_what_is_not_simulated_is_refused(iam: Any, role: str, change: dict[str, Any], told: str) -> None:
    asked = {"PolicySourceArn": role, "ActionNames": ["s3:GetObject"], **change}
    assert refused(iam.simulate_principal_policy, **asked)[2] == f"This local account cannot do this: {told}."
    with pytest.raises(ClientError, match="NoSuchEntity"):
        decisions(iam, f"{role}-gone", "s3:GetObject")
