"""Runs evaluation.jsonl through a built model on its Inferentia chip, and fetches the outputs.

SageMaker offers these chips for real-time endpoints, not for processing jobs. So a temporary endpoint runs the rows:
its container records them before it serves (containers/neuron/serve). The endpoint is in service when the outputs are
in S3, and is then deleted. The same archive, rows, image and instance type are recorded only once.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aws_api.errors import AwsRefused
from aws_api.sagemaker import ENDPOINT_LOG, Endpoint
from model_build.progress import Progress, silent
from model_build.remote.build_account import LOG_LINES, BuildAccount, failure
from model_build.remote.request import BuildSite, job_name
from workloads import (
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

Sleep = Callable[[float], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """The endpoint and the files that it needs."""

    endpoint: Endpoint
    uploads: Mapping[str, Path]
    """Files by the s3:// URLs where they go."""
    outputs_url: str


def plan_recording(folder: WorkloadFolder, variant_name: str, root: Path, site: BuildSite) -> Recording:
    """Raises `UsageError` for a target that is not for Inferentia, and what `load_artifact` raises."""
    workload = folder.workload
    target = folder.target(folder.variant(variant_name).target)
    if not isinstance(target, NeuronTarget):
        raise UsageError(
            f"{workload.name} for {variant_name} does not run on Inferentia. "
            f"`python -m model_build verify {workload.name} --target {variant_name}` compares it on this machine."
        )
    image_uri, artifact = site.image_uri or "", load_artifact(root, workload.name, variant_name)
    rows = folder.path / "evaluation.jsonl"
    chip = site.instance_type or f"ml.{(target.instance_types or ('',))[0].removeprefix('ml.')}"
    if family(chip) not in ("inf1", "inf2"):
        raise UsageError(
            f"--instance-type: got '{chip}', which has no Inferentia chip. Name one such as ml.inf1.xlarge."
        )
    facts = "\n".join((artifact.archive_sha256, file_sha256(rows), image_uri, chip))
    key = hashlib.sha256(facts.encode()).hexdigest()[:32]
    base = f"s3://{site.bucket}/recordings/{workload.name}/{key}"
    archive = artifact_file(root, workload.name, variant_name).with_name(artifact.archive)
    outputs = f"{base}/outputs.json"
    endpoint = Endpoint(
        name=job_name((workload.name, "record"), None, site.stamp),
        role_arn=site.role_arn,
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
    account: BuildAccount,
    progress: Progress = silent,
    sleep: Sleep = time.sleep,
) -> None:
    """Writes the model's outputs on the chip to `output`.

    Raises `Unavailable` if the container fails or records nothing, or `AwsUnavailable`.
    """
    if account.exists(recording.outputs_url):
        progress("Already recorded")
    else:
        for url, file in recording.uploads.items():
            progress(f"Uploading {file.name}")
            account.upload(url, file)
        with _endpoint(recording.endpoint, account, progress, sleep):
            _wait(recording.endpoint, account, progress, sleep)
        if not account.exists(recording.outputs_url):
            raise Unavailable(
                f"{recording.endpoint.image_uri} served the model but recorded nothing: it is older than this "
                "containers/neuron/serve. Build it again."
            )
    progress("Fetching the outputs")
    output.parent.mkdir(parents=True, exist_ok=True)
    account.download(recording.outputs_url, output)


@contextlib.contextmanager
def _endpoint(endpoint: Endpoint, account: BuildAccount, progress: Progress, sleep: Sleep) -> Iterator[None]:
    """Creates the endpoint, and deletes it in any case: it costs by the hour."""
    try:
        try:
            account.create_endpoint(endpoint)
        except AwsRefused as error:
            if error.code == "ResourceLimitExceeded":
                raise Unavailable(
                    f"The quota does not allow the endpoint: {error.reason}\nRequest more of "
                    f"'{endpoint.instance_type} for endpoint usage' in Service Quotas."
                ) from error
            raise
        yield
    except BaseException:
        account.stop_retrying()
        raise
    finally:
        account.delete_endpoint(endpoint.name, progress, sleep)


def _wait(endpoint: Endpoint, account: BuildAccount, progress: Progress, sleep: Sleep) -> None:
    while True:
        described = account.describe_endpoint(endpoint.name)
        status = described["EndpointStatus"]
        progress(f"{endpoint.name} on {endpoint.instance_type}: {status}")
        if status == "InService":
            return
        if status == "Failed":
            group = ENDPOINT_LOG.format(endpoint=endpoint.name)
            read_log = partial(account.endpoint_log, endpoint.name, LOG_LINES)
            raise failure(f"The endpoint {endpoint.name}", described, group, read_log)
        sleep(POLL_S)
