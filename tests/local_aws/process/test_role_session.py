"""A process with a session of a role calls the account as that role."""

import json
from typing import Any

import boto3
import pytest
from botocore.session import Session

from local_aws.process.local_account import LocalAccount, role_session
from workloads import Unavailable

TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}],
}


@pytest.mark.integration
def test_boto3_calls_the_account_as_the_role(account: LocalAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    iam = boto3.client("iam", **account.client_arguments())
    arn = iam.create_role(RoleName="step", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
    variables = role_session(account.environment, arn)
    assert account.environment["AWS_SECRET_ACCESS_KEY"] not in variables.values(), "the owner's key stays out"
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    sts: Any = Session().create_client("sts")
    identity = sts.get_caller_identity()
    assert identity["Arn"] == "arn:aws:sts::123456789012:assumed-role/step/AWSCodeBuild"


@pytest.mark.integration
def test_an_account_that_refuses_its_key_is_reported(account: LocalAccount) -> None:
    other = {**account.environment, "AWS_ACCESS_KEY_ID": "LOCAL0000000000OTHER"}
    with pytest.raises(Unavailable, match=r"^arn:aws:iam::123456789012:role/step cannot be assumed at the local "):
        role_session(other, "arn:aws:iam::123456789012:role/step")
