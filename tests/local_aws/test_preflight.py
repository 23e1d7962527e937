"""`python -m stacks preflight` against the account on this machine: what it prints, and what it cannot ask there."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from local_aws.process.local_account import LocalAccount
from stacks.__main__ import main

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _an_account(account: LocalAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in account.environment.items():
        monkeypatch.setenv(name, value)


def test_a_check_that_fails_is_exit_code_1_and_what_the_account_lacks_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["preflight", "DuplicatesStack", "--region", "us-west-2", "--json"]) == 1
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert shown.err == ""
    assert (document["account"], document["region"], document["stage"]) == ("123456789012", "us-west-2", "beta")
    checks = {check["check"]: check for check in document["checks"]}
    quota = checks["quota of ec2: Running On-Demand Inf instances"]
    assert (quota["verdict"], quota["found"]) == (
        "unknown",
        "A local account has no quotas and no service-linked roles, and pulls no images.",
    )
    assert checks["AMI of amazon-linux-2023/neuron"]["verdict"] == "pass"
    assert [name for name, check in checks.items() if check["verdict"] == "fail"] == ["cdk bootstrap"]
    assert all((check["what_to_do"] is not None) is (check["verdict"] == "fail") for check in checks.values())


def test_a_role_is_told_what_its_policies_do_not_allow(
    account: LocalAccount,
    client: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    iam = client("iam")
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    role = iam.create_role(RoleName="deployer", AssumeRolePolicyDocument=document)["Role"]["Arn"]
    own = {"Effect": "Allow", "Action": ["iam:GetRole", "iam:SimulatePrincipalPolicy"], "Resource": role}
    cdks = {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "arn:aws:iam::*:role/cdk-hnb659fds-deploy-*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [own, cdks]})
    iam.put_role_policy(RoleName="deployer", PolicyName="deploys", PolicyDocument=document)
    given = client("sts").assume_role(RoleArn=role, RoleSessionName="me")["Credentials"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", given["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", given["SecretAccessKey"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", given["SessionToken"])
    assert main(["preflight", "SpellcheckStack", "--json"]) == 1
    checks = {check["check"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["sts:AssumeRole on CDK's deploy role"]["verdict"] == "pass"
    publishing = checks["sts:AssumeRole on CDK's file-publishing role"]
    assert (publishing["verdict"], publishing["found"]) == ("fail", f"No policy allows it to {role}.")
    bootstrap = checks["cdk bootstrap"]
    assert bootstrap["verdict"] == "unknown", "the role may not read the parameter"
    assert "AccessDenied" in bootstrap["found"]
