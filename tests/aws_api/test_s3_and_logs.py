"""Files and logs against moto within this process: real botocore, no network."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from boto3.exceptions import RetriesExceededError
from botocore.exceptions import IncompleteReadError
from moto import mock_aws

from aws_api import logs
from aws_api.errors import AwsRefused, AwsUnavailable, AwsUnreachable, NotFound
from aws_api.s3 import S3Session
from aws_api.sagemaker import SageMakerAccount
from tests.builders import message_of
from workloads import Interrupted, Unavailable

GROUP = "/aws/sagemaker/ProcessingJobs"


@pytest.fixture
def aws() -> Iterator[S3Session]:
    with mock_aws():
        yield S3Session(boto3.Session(region_name="eu-west-1"))


def test_an_upload_makes_a_missing_bucket_that_is_closed_to_the_public(aws: S3Session) -> None:
    aws.upload("s3://new/folder/a", b"one")
    assert aws.read("s3://new/folder/a") == b"one"
    blocked = aws.client("s3").get_public_access_block(Bucket="new")["PublicAccessBlockConfiguration"]
    assert set(blocked.values()) == {True}
    assert aws.client("s3").get_bucket_location(Bucket="new")["LocationConstraint"] == "eu-west-1"


@pytest.mark.parametrize("notify", [None, print], ids=["threads", "this-thread"])
def test_files_of_any_size_go_up_and_come_down(aws: S3Session, tmp_path: Path, notify: Any) -> None:
    aws.notify = notify
    (tmp_path / "up").write_bytes(b"0123456789" * 1_000_000)  # of more parts than one
    aws.upload_archive("s3://new/folder/big", tmp_path / "up")
    aws.download("s3://new/folder/big", tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == (tmp_path / "up").read_bytes()
    assert aws.files("s3://new/folder") == ("big",)
    assert aws.size("s3://new/folder/big") == 10_000_000


@pytest.mark.parametrize("name", ["/etc/x", "../x", "host/../../x"])
def test_a_key_that_would_lead_out_of_a_folder_here_is_refused(aws: S3Session, name: str) -> None:
    aws.upload(f"s3://new/output/{name}", b"")
    message = message_of(Unavailable, aws.files, "s3://new/output")
    assert message == f"s3://new/output/{name}: a key that would lead out of a folder. Delete that object."


def test_what_is_not_there_has_no_size(aws: S3Session) -> None:
    assert aws.size("s3://none/a") is None
    aws.upload("s3://new/longer-name", b"")
    assert aws.size("s3://new/longer") is None


def test_a_missing_bucket_is_made_only_where_that_is_wanted(aws: S3Session, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(AwsRefused, match="AWS refused PutObject: NoSuchBucket: "):
        aws.upload_file("s3://none/file", tmp_path / "file")
    aws.upload("s3://new/a", b"")
    with pytest.raises(AwsRefused, match="AWS refused GetObject: 404: "):
        aws.download("s3://new/nothing", tmp_path / "file")


def test_a_download_that_broke_off_again_and_again_is_unreachable(
    aws: S3Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: Any = IncompleteReadError(actual_bytes=1, expected_bytes=2)

    def download_file(*_: Any, **__: Any) -> None:
        raise RetriesExceededError(broken)

    monkeypatch.setattr(aws.client("s3"), "download_file", download_file)
    with pytest.raises(AwsUnreachable, match=f"AWS cannot be reached: {broken}"):
        aws.download("s3://bucket/file", tmp_path / "file")


def test_the_log_of_a_job_is_read_from_its_end(aws: S3Session) -> None:
    assert logs.last_lines(aws, GROUP, 2, prefix="job-1/") == []
    client = aws.client("logs")
    client.create_log_group(logGroupName=GROUP)
    for name in ("job-1/algo-1-1700000000", "job-10/algo-1-1700000000"):
        client.create_log_stream(logGroupName=GROUP, logStreamName=name)
        events = [{"timestamp": int(time.time() * 1000) + i, "message": f"{name[:6]} {i}\n"} for i in range(5)]
        client.put_log_events(logGroupName=GROUP, logStreamName=name, logEvents=events)
    assert logs.last_lines(aws, GROUP, 2, prefix="job-1/") == ["job-1/ 3", "job-1/ 4"]
    assert logs.last_lines(aws, GROUP, 1) == ["job-10 4"]
    assert logs.last_lines(aws, GROUP, 1, prefix="job-2/") == []


BUSY = AwsRefused("DeleteEndpoint", "ValidationException", 'Cannot update in-progress endpoint "arn".')
DENIED = AwsRefused("DeleteEndpoint", "AccessDeniedException", "Not you.")
LEFT = (
    "The endpoint e may still exist and costs by the hour. Delete it: aws sagemaker delete-endpoint --endpoint-name e"
)


class Account(SageMakerAccount):
    """Refuses DeleteEndpoint with `refusals`, one after another, and then accepts it."""

    def __init__(self, *refusals: BaseException) -> None:
        self.refusals = list(refusals)
        self.calls: list[str] = []
        self.slept_s = 0.0
        self.said: list[str] = []

    def call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "delete_endpoint" and self.refusals:
            raise self.refusals.pop(0)
        self.calls.append(operation)
        return {}

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds

    def delete(self) -> None:
        self.delete_endpoint("e", self.said.append, self.sleep)


def test_an_endpoint_is_deleted_when_its_start_has_ended() -> None:
    account = Account(*[BUSY] * 20)
    account.delete()
    assert account.calls == ["delete_endpoint", "delete_endpoint_config"]
    waiting = "Endpoint e starts or updates. Waiting to delete it: {} of 60 min"
    assert (account.slept_s, account.said) == (100.0, [waiting.format(0), waiting.format(1)])


def test_an_endpoint_that_does_not_exist_is_deleted() -> None:
    account = Account(NotFound("DeleteEndpoint", "ValidationException", 'Could not find endpoint "arn".'))
    account.delete()
    assert (account.calls, account.said) == (["delete_endpoint_config"], [])


@pytest.mark.parametrize(("refusals", "slept_s"), [([DENIED], 0.0), ([BUSY] * 1000, 3600.0)], ids=["denied", "busy"])
def test_an_endpoint_that_is_left_behind_is_named_with_the_command_that_deletes_it(
    refusals: list[AwsRefused], slept_s: float
) -> None:
    account = Account(*refusals)
    assert (message_of(AwsUnavailable, account.delete), account.slept_s) == (f"{refusals[0]}\n{LEFT}", slept_s)


def test_ctrl_c_ends_the_wait_and_names_the_endpoint() -> None:
    message = message_of(Interrupted, Account(BUSY, KeyboardInterrupt()).delete)
    assert message == f"Interrupted: the endpoint was not deleted.\n{LEFT}"
