"""The AWS calls of a remote build and of a recording, as one object that tests replace."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from aws_api import logs, processing_jobs, s3
from aws_api.errors import AwsUnavailable, NotFound
from aws_api.expiry import GRACE_S, expiry_tag
from aws_api.processing_jobs import ProcessingJob
from aws_api.sagemaker import ENDPOINT_LOG, Endpoint, delete_endpoint
from aws_api.session import AwsSession
from workloads import Unavailable

LOG_LINES = 20


def failure(
    subject: str, described: Mapping[str, Any], log_group: str, read_log: Callable[[], Sequence[str]]
) -> Unavailable:
    """Combines the messages of the service, the container and its log."""
    lines = [f"{subject} failed: {described.get('FailureReason') or 'the service gave no reason.'}"]
    if message := described.get("ExitMessage"):
        lines.append(message.rstrip())
    try:
        log = read_log()
    except AwsUnavailable as error:
        log = [f"(it cannot be read: {error})"]
    if log:
        lines += [f"The last lines of its log in {log_group}:", *(f"  {line}" for line in log)]
    return Unavailable("\n".join(lines))


class BuildAccount(AwsSession):
    """Descriptions have the API's shape. Every method raises `AwsUnavailable` if AWS does not answer."""

    def upload(self, url: str, file: Path, kms_key: str | None = None) -> None:
        s3.upload_file(self, url, file, kms_key=kms_key)

    def exists(self, url: str) -> bool:
        return s3.size(self, url) is not None

    def files(self, url: str) -> Sequence[str]:
        """Returns the names of all files below an s3:// folder, relative to it."""
        return s3.list_files(self, url)

    def download(self, url: str, file: Path) -> None:
        s3.download(self, url, file)

    def create_job(self, job: ProcessingJob) -> None:
        """Raises `AwsRefused` if the job was not created."""
        self.call("sagemaker", "create_processing_job", **job.request())

    def describe_job(self, name: str) -> Mapping[str, Any]:
        return self.call("sagemaker", "describe_processing_job", ProcessingJobName=name)

    def stop_job(self, name: str) -> None:
        self.call("sagemaker", "stop_processing_job", ProcessingJobName=name)

    def job_log(self, name: str, lines: int) -> Sequence[str]:
        """Returns the last lines of a job's log."""
        return logs.last_lines(self, processing_jobs.LOG_GROUP, lines, prefix=f"{name}/")

    def create_endpoint(self, endpoint: Endpoint) -> None:
        """Creates an endpoint that `jobs cleanup` deletes if this process is killed."""
        tag = expiry_tag(datetime.now(timezone.utc) + timedelta(seconds=endpoint.startup_s + GRACE_S))
        tagged = replace(endpoint, tags={**endpoint.tags, tag["Key"]: tag["Value"]})
        for operation, request in tagged.requests().items():
            self.call("sagemaker", operation, **request)

    def describe_endpoint(self, name: str) -> Mapping[str, Any]:
        return self.call("sagemaker", "describe_endpoint", EndpointName=name)

    def delete_endpoint(
        self, name: str, progress: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Deletes the endpoint, its configuration and its model, if they exist. See `aws_api.sagemaker`."""
        delete_endpoint(self, name, progress, sleep)
        for noun in ("endpoint_config", "model"):
            with suppress(NotFound):
                self.call("sagemaker", f"delete_{noun}", **{f"{noun.title().replace('_', '')}Name": name})

    def endpoint_log(self, name: str, lines: int) -> Sequence[str]:
        """Returns the last lines of the container's log."""
        return logs.last_lines(self, ENDPOINT_LOG.format(endpoint=name), lines)
