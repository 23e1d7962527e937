"""Runs evaluation.jsonl through a built model on its Inferentia chip, and fetches what the model gave.

SageMaker has the chips for real-time endpoints and runs no processing job on them. So an endpoint is made for as long
as this takes: its container runs the rows before it serves (containers/neuron/serve), so it is in service when the
outputs are in S3, and then it is deleted. `python -m model_build verify --outputs` compares the file with the original.

What was recorded once with an archive, its rows, the image and the instance type is not recorded again.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Protocol

from aws_api import endpoints, logs, s3
from aws_api.endpoints import LOG_GROUP, Endpoint
from aws_api.errors import AwsRefused, AwsUnavailable
from aws_api.expiry import GRACE_S, expiry_tag
from aws_api.session import AwsSession
from model_build.progress import Progress, silent
from model_build.remote.request import job_name
from workloads import (
    ModelArtifact,
    NeuronTarget,
    Unavailable,
    UsageError,
    WorkloadFolder,
    artifact_file,
    file_sha256,
    load_artifact,
)
from workloads.instances import family

STARTUP_S = 1800
POLL_S = 15.0
LOG_LINES = 20

Sleep = Callable[[float], None]


class ChipAccount(Protocol):
    """Every method raises `AwsUnavailable` where the service is not there."""

    def is_there(self, url: str) -> bool:
        """Tells whether S3 has this file."""

    def upload(self, url: str, file: Path) -> None: ...

    def download(self, url: str, file: Path) -> None: ...

    def create(self, endpoint: Endpoint) -> None: ...

    def describe(self, name: str) -> Mapping[str, Any]:
        """Returns DescribeEndpoint's answer."""

    def delete(self, name: str) -> None:
        """Deletes what there is of the endpoint, its configuration and its model."""

    def log_tail(self, name: str, lines: int) -> Sequence[str]:
        """Returns the last lines of the container's log; none where it wrote none."""

    def stop_retrying(self) -> None:
        """Lets every later call fail at once where AWS does not answer."""


class AwsChipAccount:
    def __init__(self, session: AwsSession) -> None:
        self._aws = session

    def is_there(self, url: str) -> bool:
        return s3.size(self._aws, url) is not None

    def upload(self, url: str, file: Path) -> None:
        s3.upload_file(self._aws, url, file)

    def download(self, url: str, file: Path) -> None:
        s3.download(self._aws, url, file)

    def create(self, endpoint: Endpoint) -> None:
        """Gives it a time from which `inference_recommender sweep` may delete it: this process may be killed."""
        tag = expiry_tag(datetime.now(timezone.utc) + timedelta(seconds=endpoint.startup_s + GRACE_S))
        endpoints.create(self._aws, replace(endpoint, tags={**endpoint.tags, tag["Key"]: tag["Value"]}))

    def describe(self, name: str) -> Mapping[str, Any]:
        return endpoints.describe(self._aws, name)

    def delete(self, name: str) -> None:
        endpoints.delete(self._aws, name)

    def log_tail(self, name: str, lines: int) -> Sequence[str]:
        return logs.last_lines(self._aws, LOG_GROUP.format(name=name), lines)

    def stop_retrying(self) -> None:
        self._aws.stop_retrying()


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """All that is sent."""

    endpoint: Endpoint
    uploads: Mapping[str, Path]
    """Files by the s3:// URLs where they go."""
    outputs_url: str


def plan_recording(
    folder: WorkloadFolder,
    variant_name: str,
    root: Path,
    *,
    role_arn: str,
    bucket: str,
    image_uri: str,
    instance_type: str | None,
    stamp: str,
) -> Recording:
    """Raises `UsageError` for a target that is not for Inferentia, and what `load_artifact` raises."""
    workload = folder.workload
    target = folder.target(folder.variant(variant_name).target)
    if not isinstance(target, NeuronTarget):
        raise UsageError(
            f"{workload.name} for {variant_name} is not for Inferentia: its build compared it where it was built. "
            f"`python -m model_build verify {workload.name} --target {variant_name}` compares it again."
        )
    artifact = load_artifact(root, workload.name, variant_name)
    rows = folder.path / "evaluation.jsonl"
    chip = instance_type or f"ml.{(target.instance_types or ('',))[0].removeprefix('ml.')}"
    if family(chip) not in ("inf1", "inf2"):
        raise UsageError(
            f"--instance-type: got '{chip}', which has no Inferentia chip. Name one such as ml.inf1.xlarge."
        )
    base = f"s3://{bucket}/recordings/{workload.name}/{_key(artifact, rows, image_uri, chip)}"
    archive = artifact_file(root, workload.name, variant_name).with_name(artifact.archive)
    outputs = f"{base}/outputs.json"
    endpoint = Endpoint(
        name=job_name((workload.name, "record"), None, stamp),
        role_arn=role_arn,
        image_uri=image_uri,
        model_url=f"{base}/model.tar.gz",
        environment={"RECORD_INPUT": f"{base}/evaluation.jsonl", "RECORD_OUTPUT": outputs},
        instance_type=chip,
        startup_s=STARTUP_S,
        tags={"workload": workload.name, "target": variant_name},
    )
    uploads = {endpoint.model_url: archive, endpoint.environment["RECORD_INPUT"]: rows}
    return Recording(endpoint=endpoint, uploads=uploads, outputs_url=outputs)


def record_on_chip(
    recording: Recording,
    output: Path,
    account: ChipAccount,
    progress: Progress = silent,
    sleep: Sleep = time.sleep,
) -> None:
    """Leaves in `output` what the model gave on the chip.

    Raises `Unavailable` where the container fails or records nothing, or `AwsUnavailable`.
    """
    if account.is_there(recording.outputs_url):
        progress("Recorded before")
    else:
        for url, file in recording.uploads.items():
            progress(f"Uploading {file.name}")
            account.upload(url, file)
        with _endpoint(recording.endpoint, account):
            _wait(recording.endpoint, account, progress, sleep)
        if not account.is_there(recording.outputs_url):
            raise Unavailable(
                f"{recording.endpoint.image_uri} served the model and recorded nothing: it is older than "
                "containers/neuron/serve of here. Build it again."
            )
    progress("Fetching what was recorded")
    output.parent.mkdir(parents=True, exist_ok=True)
    account.download(recording.outputs_url, output)


def _key(artifact: ModelArtifact, rows: Path, image_uri: str, instance_type: str) -> str:
    parts = (artifact.archive_sha256, file_sha256(rows), image_uri, instance_type)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


@contextlib.contextmanager
def _endpoint(endpoint: Endpoint, account: ChipAccount) -> Iterator[None]:
    """Makes the endpoint, and deletes it however this ends: it costs by the hour."""
    try:
        try:
            account.create(endpoint)
        except AwsRefused as error:
            if error.code == "ResourceLimitExceeded":
                raise Unavailable(
                    f"AWS refused the endpoint for want of quota: {error.reason}\nAsk for more of "
                    f"'{endpoint.instance_type} for endpoint usage' in Service Quotas."
                ) from error
            raise
        yield
    except BaseException:
        account.stop_retrying()
        raise
    finally:
        try:
            account.delete(endpoint.name)
        except AwsUnavailable as error:
            raise Unavailable(
                f"{error}\nThe endpoint {endpoint.name} may still be there and costs by the hour. Delete it: "
                f"aws sagemaker delete-endpoint --endpoint-name {endpoint.name}"
            ) from error


def _wait(endpoint: Endpoint, account: ChipAccount, progress: Progress, sleep: Sleep) -> None:
    while True:
        described = account.describe(endpoint.name)
        status = described["EndpointStatus"]
        progress(f"{endpoint.name} on {endpoint.instance_type}: {status}")
        if status == "InService":
            return
        if status == "Failed":
            raise _failure(endpoint.name, described, account)
        sleep(POLL_S)


def _failure(name: str, described: Mapping[str, Any], account: ChipAccount) -> Unavailable:
    lines = [f"The endpoint {name} failed: {described.get('FailureReason') or 'the service gave no reason.'}"]
    try:
        log = account.log_tail(name, LOG_LINES)
    except AwsUnavailable as error:
        log = [f"(it cannot be read: {error})"]
    if log:
        lines += [f"The last lines of its log in {LOG_GROUP.format(name=name)}:", *(f"  {line}" for line in log)]
    return Unavailable("\n".join(lines))
