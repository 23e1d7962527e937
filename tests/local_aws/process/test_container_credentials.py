"""A process gets a role's credentials over loopback, as in CodeBuild, and nothing without its token."""

import http.client
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.utils import ContainerMetadataFetcher

from local_aws.process.container_credentials import RENEWED_BEFORE, ContainerCredentials
from local_aws.process.local_account import LocalAccount
from workloads import Unavailable

TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}],
}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Sts:
    """Hands out sessions of an hour, each with a key of its own."""

    def __init__(self) -> None:
        self.now = NOON
        self.sessions = 0

    def assume_role(self, **request: object) -> dict[str, object]:
        self.sessions += 1
        key = {"AccessKeyId": f"KEY{self.sessions}", "SecretAccessKey": "secret", "SessionToken": "token"}
        return {"Credentials": {**key, "Expiration": self.now + timedelta(hours=1)}}


@pytest.fixture(scope="module")
def role(account: LocalAccount) -> str:
    iam = boto3.client("iam", **account.client_arguments())
    arn: str = iam.create_role(RoleName="step", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
    return arn


@pytest.fixture
def environment(account: LocalAccount, role: str) -> Iterator[dict[str, str]]:
    with ContainerCredentials.serve(account.environment, role) as variables:
        yield variables


def fetch(environment: dict[str, str], path: str = "", **headers: str) -> tuple[int, dict[str, str]]:
    uri = urlsplit(environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"])
    connection = http.client.HTTPConnection(uri.netloc, timeout=60)
    connection.request("GET", path or uri.path, headers=headers)
    answer = connection.getresponse()
    status, body = answer.status, json.loads(answer.read())
    connection.close()
    return status, body


def test_boto3_calls_the_account_as_the_role(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    session = boto3.Session()
    credentials = session.get_credentials()
    assert credentials is not None
    assert credentials.method == "container-role"
    assert session.client("sts").get_caller_identity()["Arn"] == (
        "arn:aws:sts::123456789012:assumed-role/step/AWSCodeBuild"
    )


def test_the_owners_key_is_not_among_the_variables(environment: dict[str, str], account: LocalAccount) -> None:
    assert set(environment) == {
        "AWS_ENDPOINT_URL",
        "AWS_DEFAULT_REGION",
        "AWS_REGION",
        "AWS_EC2_METADATA_DISABLED",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    }
    assert account.environment["AWS_SECRET_ACCESS_KEY"] not in environment.values()


def test_sdks_take_the_address_for_a_host_of_credentials(environment: dict[str, str]) -> None:
    uri = environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    headers = {"Authorization": environment["AWS_CONTAINER_AUTHORIZATION_TOKEN"]}
    assert set(ContainerMetadataFetcher().retrieve_full_uri(uri, headers)) == {
        "AccessKeyId",
        "SecretAccessKey",
        "Token",
        "Expiration",
    }
    assert urlsplit(uri).hostname == "127.0.0.1"  # the SDK for JavaScript takes this one and `localhost` alone


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "guessed"}, {"Authorization": ""}], ids=["none", "wrong", "empty"]
)
def test_nothing_is_told_without_the_token(environment: dict[str, str], headers: dict[str, str]) -> None:
    assert fetch(environment, **headers) == (
        403,
        {"code": "AccessDenied", "message": "The Authorization token is wrong."},
    )


def test_another_path_has_no_credentials(environment: dict[str, str]) -> None:
    token = environment["AWS_CONTAINER_AUTHORIZATION_TOKEN"]
    assert fetch(environment, "/else", Authorization=token) == (
        404,
        {"code": "NotFound", "message": "Credentials are at /credentials."},
    )


def test_it_ends_with_its_block(account: LocalAccount, role: str) -> None:
    with ContainerCredentials.serve(account.environment, role) as variables:
        pass
    with pytest.raises(ConnectionRefusedError):
        fetch(variables)


def test_a_session_is_kept_until_it_ends_soon_and_is_then_renewed() -> None:
    sts = Sts()
    credentials = ContainerCredentials(sts, "arn:aws:iam::123456789012:role/step", "name")
    assert credentials.document(NOON) == {
        "AccessKeyId": "KEY1",
        "SecretAccessKey": "secret",
        "Token": "token",
        "Expiration": "2026-01-01T13:00:00Z",
    }
    last = NOON + timedelta(hours=1) - RENEWED_BEFORE
    assert credentials.document(last)["AccessKeyId"] == "KEY1"
    sts.now = last + timedelta(seconds=1)
    renewed = credentials.document(sts.now)
    assert (renewed["AccessKeyId"], renewed["Expiration"]) == ("KEY2", "2026-01-01T13:40:01Z")


def test_an_account_that_does_not_answer_is_said_at_once(account: LocalAccount) -> None:
    gone = {**account.environment, "AWS_ACCESS_KEY_ID": "LOCAL000000000000000"}
    with pytest.raises(Unavailable) as caught, ContainerCredentials.serve(gone, "arn:aws:iam::123456789012:role/step"):
        pass
    assert str(caught.value).startswith(
        "arn:aws:iam::123456789012:role/step cannot be assumed at the local account: An error occurred "
        "(InvalidClientTokenId) when calling the AssumeRole operation: This local account does not have this "
    )
