"""The calls that a remote build makes to AWS: the port `Account`, and its adapter over `aws_api`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from aws_api import logs, processing_jobs, s3
from aws_api.processing_jobs import ProcessingJob
from aws_api.session import AwsSession


class Account(Protocol):
    """Descriptions have the API's shape. Every method raises `AwsUnavailable` where the service is not there."""

    @property
    def region(self) -> str: ...

    def default_bucket(self) -> str:
        """Returns the name of SageMaker's own bucket of the account and region."""

    def stop_retrying(self) -> None:
        """Lets every later call fail at once where AWS does not answer."""

    def upload(self, url: str, file: Path, kms_key: str | None) -> None:
        """Puts a file at an s3:// URL."""

    def files(self, url: str) -> Sequence[str]:
        """Returns the names of all files below an s3:// folder, relative to it."""

    def download(self, url: str, file: Path) -> None: ...

    def create_job(self, job: ProcessingJob) -> None:
        """Raises `AwsRefused` where the job was not made."""

    def describe_job(self, name: str) -> Mapping[str, Any]: ...

    def stop_job(self, name: str) -> None: ...

    def log_tail(self, name: str, lines: int) -> Sequence[str]:
        """Returns the last lines of a job's log; none where it wrote none."""


class AwsAccount:
    def __init__(self, session: AwsSession) -> None:
        self._aws = session

    @property
    def region(self) -> str:
        return self._aws.region

    def default_bucket(self) -> str:
        return self._aws.default_bucket()

    def stop_retrying(self) -> None:
        self._aws.stop_retrying()

    def upload(self, url: str, file: Path, kms_key: str | None) -> None:
        s3.upload_file(self._aws, url, file, kms_key=kms_key)

    def files(self, url: str) -> Sequence[str]:
        return s3.list_files(self._aws, url)

    def download(self, url: str, file: Path) -> None:
        s3.download(self._aws, url, file)

    def create_job(self, job: ProcessingJob) -> None:
        processing_jobs.create(self._aws, job)

    def describe_job(self, name: str) -> Mapping[str, Any]:
        return processing_jobs.describe(self._aws, name)

    def stop_job(self, name: str) -> None:
        processing_jobs.stop(self._aws, name)

    def log_tail(self, name: str, lines: int) -> Sequence[str]:
        return logs.last_lines(self._aws, processing_jobs.LOG_GROUP, lines, prefix=f"{name}/")
