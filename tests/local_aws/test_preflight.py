"""`python -m stacks preflight` against the account on this machine: what it prints, and what it cannot ask there."""

import json

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
