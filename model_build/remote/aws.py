"""AWS as a remote build needs it: SageMaker, S3, CloudWatch Logs, and every refusal turned into one sentence.

The only module of the package that knows boto3. An account on this machine is reached through the same calls
(AWS_ENDPOINT_URL).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from boto3.exceptions import Boto3Error
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
)

from model_build.remote.errors import (
    LOG_GROUP,
    AwsRefused,
    AwsUnavailable,
    AwsUnreachable,
    JobNameTaken,
    NoCredentials,
    NoQuota,
    NoRegion,
)

RETRIES = Config(retries={"mode": "standard", "max_attempts": 5})


class Aws:
    """Clients are made on first use, so that showing a request needs none."""

    def __init__(self, session: boto3.Session | None = None) -> None:
        self._session = session or boto3.Session()
        self._clients: dict[str, Any] = {}

    @property
    def region(self) -> str:
        if not self._session.region_name:
            raise NoRegion()
        return self._session.region_name

    def default_bucket(self) -> str:
        """SageMaker's own bucket of the account and region."""
        with _speaking_plainly("GetCallerIdentity"):
            account = self._client("sts").get_caller_identity()["Account"]
        return f"sagemaker-{self.region}-{account}"

    def upload(self, url: str, file: Path, kms_key: str | None) -> None:
        bucket, key = _place(url)
        encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}
        with _speaking_plainly("PutObject"):
            self._client("s3").upload_file(str(file), bucket, key, ExtraArgs=encryption)

    def files(self, url: str) -> tuple[str, ...]:
        bucket, prefix = _place(f"{url.rstrip('/')}/")
        with _speaking_plainly("ListObjectsV2"):
            pages = self._client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            return tuple(item["Key"].removeprefix(prefix) for page in pages for item in page.get("Contents", []))

    def download(self, url: str, file: Path) -> None:
        bucket, key = _place(url)
        with _speaking_plainly("GetObject"):
            self._client("s3").download_file(bucket, key, str(file))

    def create_job(self, request: Mapping[str, Any]) -> None:
        try:
            with _speaking_plainly("CreateProcessingJob"):
                self._client("sagemaker").create_processing_job(**request)
        except AwsRefused as error:
            if error.code == "ResourceInUse":
                raise JobNameTaken(request["ProcessingJobName"]) from error
            if error.code == "ResourceLimitExceeded":
                cluster = request["ProcessingResources"]["ClusterConfig"]
                raise NoQuota(cluster["InstanceType"], str(error).rpartition(f"{error.code}: ")[2]) from error
            raise

    def describe_job(self, name: str) -> Mapping[str, Any]:
        with _speaking_plainly("DescribeProcessingJob"):
            found: Mapping[str, Any] = self._client("sagemaker").describe_processing_job(ProcessingJobName=name)
        return found

    def stop_job(self, name: str) -> None:
        with _speaking_plainly("StopProcessingJob"):
            self._client("sagemaker").stop_processing_job(ProcessingJobName=name)

    def log_tail(self, name: str, lines: int) -> tuple[str, ...]:
        logs = self._client("logs")
        try:
            with _speaking_plainly("GetLogEvents"):
                streams = logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{name}/")
                events = [
                    event
                    for stream in streams["logStreams"]
                    for event in logs.get_log_events(
                        logGroupName=LOG_GROUP, logStreamName=stream["logStreamName"], startFromHead=False, limit=lines
                    )["events"]
                ]
        except AwsRefused as error:
            if error.code == "ResourceNotFoundException":
                return ()
            raise
        return tuple(str(event["message"]).rstrip() for event in events[-lines:])

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            with _speaking_plainly(f"a client of {service}"):
                make: Any = self._session.client  # its stubs list every service by name
                self._clients[service] = make(service, region_name=self.region, config=RETRIES)
        return self._clients[service]


def _place(url: str) -> tuple[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return bucket, key


@contextmanager
def _speaking_plainly(operation: str) -> Iterator[None]:
    """Turn what boto3 raises into this package's errors."""
    try:
        yield
    except AwsUnavailable:
        raise
    except ClientError as error:
        details = error.response.get("Error", {})
        raise AwsRefused(operation, details.get("Code", "Unknown"), details.get("Message", str(error))) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise NoCredentials() from error
    except NoRegionError as error:
        raise NoRegion() from error
    except Boto3Error as error:  # a transfer: it wraps what happened
        cause = error.__context__
        if isinstance(cause, ClientError):
            details = cause.response.get("Error", {})
            raise AwsRefused(operation, details.get("Code", "Unknown"), details.get("Message", str(cause))) from error
        raise AwsUnreachable(str(error).rstrip(".")) from error
    except (ConnectionError, HTTPClientError, BotoCoreError) as error:
        raise AwsUnreachable(str(error).rstrip(".")) from error
