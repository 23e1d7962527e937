"""The adapter against a real AWS API on loopback: boto3 as it is, moto behind it.

The local account starts no container: a test that wants a built model puts it into S3 itself.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.stub import Stubber

from local_aws.process.local_account import LocalAccount
from model_build.remote.aws import Aws
from model_build.remote.errors import AwsRefused, AwsUnreachable, JobNameTaken, NoCredentials, NoQuota, NoRegion
from model_build.remote.remote_build import build_remotely
from model_build.remote.request import RemoteBuild, plan_remote
from tests.model_build.remote.remote_account import built, miniature, somewhere
from workloads import WorkloadFolder, load_artifact, load_workload

FILES = {"spellcheck/config.pbtxt": b"name: spellcheck"}


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAccount]:
    with LocalAccount.start(state=tmp_path_factory.mktemp("account")) as running:
        boto3.client("s3", **running.client_arguments()).create_bucket(Bucket="bucket")
        yield running


@pytest.fixture
def aws(account: LocalAccount, monkeypatch: pytest.MonkeyPatch) -> Aws:
    for name, value in account.environment.items():
        monkeypatch.setenv(name, value)
    return Aws(boto3.Session())


@pytest.fixture
def folder(tmp_path: Path) -> WorkloadFolder:
    return load_workload("spellcheck", miniature(tmp_path / "root") / "workloads")


def _build(folder: WorkloadFolder, stamp: str) -> RemoteBuild:
    return plan_remote(folder, "cpu", somewhere(stamp=stamp))[0]


@pytest.mark.integration
def test_a_job_is_accepted_and_its_output_fetched(aws: Aws, folder: WorkloadFolder, tmp_path: Path) -> None:
    build = _build(folder, "fetched")
    for name, content in built("cpu", FILES).items():  # in the container's stead
        (tmp_path / name).write_bytes(content)
        aws.upload(f"{build.output_url}/{name}", tmp_path / name, None)
    artifact = build_remotely(folder, "cpu", [build], tmp_path / "root", aws, sleep=lambda seconds: None)
    assert load_artifact(tmp_path / "root", "spellcheck", "cpu") == artifact
    assert set(aws.files(build.source_url)) == {"entry.py", "source.tar.gz"}
    assert aws.describe_job(build.job_name)["AppSpecification"] == build.request["AppSpecification"]


@pytest.mark.integration
def test_a_job_can_be_stopped(aws: Aws, folder: WorkloadFolder) -> None:
    build = _build(folder, "stopped")
    aws.create_job(build.request)
    aws.stop_job(build.job_name)
    assert aws.describe_job(build.job_name)["ProcessingJobStatus"] == "Stopped"


@pytest.mark.integration
def test_the_log_of_a_job_is_read_from_its_end(aws: Aws, account: LocalAccount) -> None:
    group, stream = "/aws/sagemaker/ProcessingJobs", "job-1/algo-1-1700000000"
    assert aws.log_tail("job-1", 2) == ()
    logs = boto3.client("logs", **account.client_arguments())
    logs.create_log_group(logGroupName=group)
    for name in (stream, "job-10/algo-1-1700000000"):
        logs.create_log_stream(logGroupName=group, logStreamName=name)
        events: Any = [{"timestamp": int(time.time() * 1000) + i, "message": f"{name[:6]} {i}\n"} for i in range(5)]
        logs.put_log_events(logGroupName=group, logStreamName=name, logEvents=events)
    assert aws.log_tail("job-1", 2) == ("job-1/ 3", "job-1/ 4")


@pytest.mark.integration
def test_a_bucket_that_is_not_there_is_said(aws: Aws, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(AwsRefused, match="AWS refused PutObject: NoSuchBucket: "):
        aws.upload("s3://no-such-bucket/file", tmp_path / "file", None)
    with pytest.raises(AwsRefused, match="AWS refused GetObject: 404: "):
        aws.download("s3://bucket/nothing", tmp_path / "file")


@pytest.mark.integration
def test_the_default_bucket_is_sagemakers(aws: Aws) -> None:
    assert aws.default_bucket() == "sagemaker-us-east-1-123456789012"


def _offline(**arguments: Any) -> tuple[Aws, Any]:
    session = boto3.Session(aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1")
    aws = Aws(session)
    client = aws._clients["sagemaker"] = session.client("sagemaker", **arguments)
    return aws, client


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        (
            "ResourceLimitExceeded",
            NoQuota,
            "AWS refused CreateProcessingJob for want of quota: of 0\nAsk for more of 'ml.c5.2xlarge for processing "
            "job usage' in Service Quotas, or choose another machine with --instance-type.",
        ),
        (
            "ResourceInUse",
            JobNameTaken,
            "There is already a processing job called 'spellcheck-cpu-refused'. Start the build again: names carry the "
            "time.",
        ),
        ("ValidationException", AwsRefused, "AWS refused CreateProcessingJob: ValidationException: of 0"),
    ],
)
def test_what_sagemaker_refuses_is_said_plainly(
    folder: WorkloadFolder, code: str, error: type[Exception], said: str
) -> None:
    aws, client = _offline()
    stubbed = Stubber(client)
    stubbed.add_client_error("create_processing_job", service_error_code=code, service_message="of 0")
    with stubbed, pytest.raises(error) as refused:
        aws.create_job(_build(folder, "refused").request)
    assert str(refused.value) == said


def test_an_account_that_does_not_answer_is_unreachable() -> None:
    aws, _ = _offline(endpoint_url="http://localhost:9", config=Config(retries={"total_max_attempts": 1}))
    with pytest.raises(AwsUnreachable) as unreachable:
        aws.describe_job("job")
    assert str(unreachable.value) == (
        'AWS cannot be reached: Could not connect to the endpoint URL: "http://localhost:9/".'
    )


def test_without_credentials_or_region_it_says_what_to_configure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(NoRegion) as no_region:
        Aws(boto3.Session()).default_bucket()
    assert str(no_region.value) == ("No AWS region is set. Export AWS_DEFAULT_REGION, or set one with `aws configure`.")
    with pytest.raises(NoCredentials) as no_credentials:
        Aws(boto3.Session(region_name="us-east-1")).default_bucket()
    assert str(no_credentials.value) == ("No AWS credentials were found. Configure them with `aws configure`.")
