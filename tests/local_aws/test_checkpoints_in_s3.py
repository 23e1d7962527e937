"""A checkpoint in the account's S3 is fetched as one in AWS's: by boto3 and the environment, with one's own rights."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from local_aws.process.local_account import LocalAccount
from model_build.checkpoint.fetch import fetch_from_s3
from workloads import Unavailable

pytestmark = pytest.mark.integration

BUCKET = "checkpoints"


@pytest.fixture(autouse=True)
def _no_session_of_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3's own session keeps the credentials that it found first."""
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)


@pytest.fixture
def s3(account: LocalAccount, client: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in account.environment.items():
        monkeypatch.setenv(name, value)
    client("s3").create_bucket(Bucket=BUCKET)
    return client("s3")


def why_not(uri: str, cache: Path) -> str:
    with pytest.raises(Unavailable) as caught:
        fetch_from_s3(uri, cache)
    return str(caught.value)


def test_a_role_that_may_not_read_it_is_told_so(
    s3: Any, client: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    role = client("iam").create_role(RoleName="reads-none", AssumeRolePolicyDocument=document)["Role"]["Arn"]
    given = client("sts").assume_role(RoleArn=role, RoleSessionName="me")["Credentials"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", given["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", given["SecretAccessKey"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", given["SessionToken"])
    assert why_not(f"s3://{BUCKET}/v1", tmp_path) == (
        f"The checkpoint 's3://{BUCKET}/v1' cannot be fetched: An error occurred (AccessDenied) when calling the "
        "ListObjectsV2 operation: User: arn:aws:sts::123456789012:assumed-role/reads-none/me is not authorized to "
        f"perform: s3:ListBucket on resource: arn:aws:s3:::{BUCKET} because no identity-based policy allows the "
        "s3:ListBucket action. Check the URI and your AWS credentials, or start `python -m local_aws`."
    )


def test_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert why_not("s3://models/v1", tmp_path) == (
        "The checkpoint 's3://models/v1' cannot be fetched: Unable to locate credentials. Check the URI and your AWS "
        "credentials, or start `python -m local_aws`."
    )
