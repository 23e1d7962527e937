"""The adapter against moto within this process: boto3 as it is, down to its requests.

moto starts no container: a test that wants a built model puts it into S3 itself.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from aws_api.errors import AwsRefused
from aws_api.session import AwsSession
from containers import archive_reader
from model_build.remote.aws_account import AwsAccount
from model_build.remote.remote_build import build_remotely
from model_build.remote.request import RemoteBuild, plan_remote
from tests.model_build.remote.remote_account import built, miniature, somewhere
from workloads import WorkloadFolder, load_artifact, load_workload

FILES = {"spellcheck/config.pbtxt": b"name: spellcheck"}


@pytest.fixture
def account() -> Iterator[AwsAccount]:
    with mock_aws():
        session = AwsSession(region="us-east-1")
        session.client("s3").create_bucket(Bucket="bucket")
        yield AwsAccount(session)


@pytest.fixture
def folder(tmp_path: Path) -> WorkloadFolder:
    return load_workload("spellcheck", miniature(tmp_path / "root") / "workloads")


def _build(folder: WorkloadFolder, stamp: str) -> RemoteBuild:
    return plan_remote(folder, "cpu", somewhere(stamp=stamp))[0]


def test_a_job_is_accepted_and_its_output_fetched(account: AwsAccount, folder: WorkloadFolder, tmp_path: Path) -> None:
    build = _build(folder, "fetched")
    for name, content in built("cpu", FILES).items():  # in the container's stead
        (tmp_path / name).write_bytes(content)
        account.upload(f"{build.job.output_url}/{name}", tmp_path / name, None)
    artifact = build_remotely(folder, "cpu", [build], tmp_path / "root", account, sleep=lambda seconds: None)
    assert load_artifact(tmp_path / "root", "spellcheck", "cpu") == artifact
    assert set(account.files(build.job.source_url)) == {"entry.py", "source.tar.gz", *archive_reader.BESIDE}
    described = account.describe_job(build.job.name)
    assert described["AppSpecification"] == build.job.request()["AppSpecification"]
    assert account.log_tail(build.job.name, 2) == []


def test_a_job_can_be_stopped(account: AwsAccount, folder: WorkloadFolder) -> None:
    build = _build(folder, "stopped")
    account.create_job(build.job)
    account.stop_job(build.job.name)
    assert account.describe_job(build.job.name)["ProcessingJobStatus"] == "Stopped"


def test_a_bucket_that_is_not_there_is_said(account: AwsAccount, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(AwsRefused, match="AWS refused PutObject: NoSuchBucket: "):
        account.upload("s3://no-such-bucket/file", tmp_path / "file", None)


def test_the_default_bucket_is_sagemakers(account: AwsAccount) -> None:
    assert account.default_bucket() == "sagemaker-us-east-1-123456789012"
