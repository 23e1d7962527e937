"""Roles of the account and sessions of them."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from local_aws.permissions.enforced import CALLS_FILE
from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import Clients, make_role, policy_document

ACCOUNT = "123456789012"
OF_ACCOUNT = {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}


class Roles:
    """Makes roles at the account, and clients with a session of one."""

    def __init__(self, account: LocalAccount) -> None:
        self.account = account
        self.iam: Any = boto3.client("iam", **account.client_arguments())
        self.sts: Any = boto3.client("sts", **account.client_arguments())
        self.names: list[str] = []

    def role(self, name: str, *statements: dict[str, Any], trusted: Any = OF_ACCOUNT, **condition: Any) -> str:
        self.names.append(name)
        return make_role(self.iam, name, *statements, trusted=trusted, **condition)

    def put(self, name: str, *statements: dict[str, Any]) -> None:
        document = policy_document(*statements)
        self.iam.put_role_policy(RoleName=name, PolicyName="inline", PolicyDocument=document)

    def clients(self, arn: str, sts: Any = None, **request: Any) -> Clients:
        given = (sts or self.sts).assume_role(RoleArn=arn, RoleSessionName="session", **request)["Credentials"]
        arguments: Any = {
            **self.account.client_arguments(),
            "aws_access_key_id": given["AccessKeyId"],
            "aws_secret_access_key": given["SecretAccessKey"],
            "aws_session_token": given["SessionToken"],
        }
        return lambda service: boto3.client(service, **arguments)  # type: ignore[call-overload]

    def calls(self) -> list[dict[str, Any]]:
        lines = (self.account.log_file.parent / CALLS_FILE).read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def delete_all(self) -> None:
        for name in self.names:
            for policy in self.iam.list_role_policies(RoleName=name)["PolicyNames"]:
                self.iam.delete_role_policy(RoleName=name, PolicyName=policy)
            for policy in self.iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
                self.iam.detach_role_policy(RoleName=name, PolicyArn=policy["PolicyArn"])
            self.iam.delete_role(RoleName=name)


@pytest.fixture
def roles(account: LocalAccount) -> Iterator[Roles]:
    made = Roles(account)
    yield made
    made.delete_all()
