"""SimulatePrincipalPolicy answers by a role's policies as they are kept, and in the API's shape."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

pytestmark = pytest.mark.integration

TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})
MODELS = "arn:aws:s3:::models/*"


@pytest.fixture(scope="module")
def iam(client: Callable[[str], Any]) -> Any:
    return client("iam")


@pytest.fixture(scope="module")
def role(iam: Any) -> Iterator[str]:
    """May read a bucket's models, from one region only, and may delete nothing."""
    arn: str = iam.create_role(Path="/ops/", RoleName="simulated", AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
    statements = [
        {"Effect": "Allow", "Action": "s3:Get*", "Resource": MODELS},
        {"Effect": "Deny", "Action": "s3:Delete*", "Resource": "*"},
        {
            "Effect": "Allow",
            "Action": "ec2:Describe*",
            "Resource": "*",
            "Condition": {"StringEquals": {"aws:RequestedRegion": "eu-west-1"}},
        },
    ]
    document = json.dumps({"Version": "2012-10-17", "Statement": statements})
    iam.put_role_policy(RoleName="simulated", PolicyName="inline", PolicyDocument=document)
    yield arn
    iam.delete_role_policy(RoleName="simulated", PolicyName="inline")
    iam.delete_role(RoleName="simulated")


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
    with pytest.raises(ClientError) as raised:
        iam.simulate_principal_policy(**{"PolicySourceArn": role, "ActionNames": ["s3:GetObject"], **change})
    assert raised.value.response["Error"]["Message"] == f"This local account cannot do this: {told}."
    with pytest.raises(ClientError, match="NoSuchEntity"):
        decisions(iam, f"{role}-gone", "s3:GetObject")
