"""A role of a template keeps all that the template says, also where an update changes it."""

from typing import Any

import pytest

from tests.local_aws.conftest import Clients, Stacks

pytestmark = pytest.mark.integration

NAME = "roles-of-a-template"
READ_ONLY = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
PULL = "arn:aws:iam::aws:policy/service-role/AmazonECSTaskExecutionRolePolicy"


def document(action: str, **elements: Any) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Action": action, **(elements or {"Resource": "*"})}
    return {"Version": "2012-10-17", "Statement": [statement]}


def template(service: str, inline: dict[str, str], managed: list[str]) -> dict[str, Any]:
    role = {
        "AssumeRolePolicyDocument": document("sts:AssumeRole", Principal={"Service": service}),
        "Policies": [{"PolicyName": name, "PolicyDocument": document(action)} for name, action in inline.items()],
        "ManagedPolicyArns": managed,
    }
    own = {"PolicyName": "own", "PolicyDocument": document("logs:PutLogEvents"), "Roles": [{"Ref": "Role"}]}
    resources = {
        "Role": {"Type": "AWS::IAM::Role", "Properties": role},
        "Policy": {"Type": "AWS::IAM::Policy", "Properties": own},
    }
    return {"Resources": resources, "Outputs": {"Name": {"Value": {"Ref": "Role"}}}}


def told(client: Clients, role: str) -> tuple[str, dict[str, str], list[str]]:
    """Returns whom a role trusts, the action of each inline policy, and its managed policies, as IAM tells them."""
    iam = client("iam")
    trust = iam.get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"]
    inline = {
        name: iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]["Statement"][0]["Action"]
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]
    }
    managed = iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
    return trust["Statement"][0]["Principal"]["Service"], inline, sorted(each["PolicyArn"] for each in managed)


def test_a_role_is_made_changed_and_unmade_as_its_template_says(client: Clients, stacks: Stacks) -> None:
    inline = {"a": "s3:GetObject", "b": "s3:PutObject"}
    made = stacks.create(NAME, template("ecs-tasks.amazonaws.com", inline, [READ_ONLY]))
    role = made["Outputs"][0]["OutputValue"]
    own = {"own": "logs:PutLogEvents"}
    assert told(client, role) == ("ecs-tasks.amazonaws.com", inline | own, [READ_ONLY])
    updated = stacks.update(NAME, template("sagemaker.amazonaws.com", {"a": "s3:ListBucket"}, [PULL]))
    assert updated["Outputs"][0]["OutputValue"] == role
    assert told(client, role) == ("sagemaker.amazonaws.com", {"a": "s3:ListBucket"} | own, [PULL])
    assert stacks.delete(NAME) == {"StackStatus": "GONE"}
    assert role not in [each["RoleName"] for each in client("iam").list_roles()["Roles"]]


def test_a_statement_that_a_condition_takes_away_is_none(client: Clients, stacks: Stacks) -> None:
    """CDK's bootstrap writes such statements into whom its roles trust."""
    body = template("ecs-tasks.amazonaws.com", {}, [])
    trust = body["Resources"]["Role"]["Properties"]["AssumeRolePolicyDocument"]
    trust["Statement"].append({"Fn::If": ["Never", trust["Statement"][0], {"Ref": "AWS::NoValue"}]})
    body["Conditions"] = {"Never": {"Fn::Equals": ["one", "another"]}}
    role = stacks.create("without-a-statement", body)["Outputs"][0]["OutputValue"]
    statements = client("iam").get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"]["Statement"]
    assert [each["Action"] for each in statements] == ["sts:AssumeRole"]
