"""Runs evaluation.jsonl through a built model on its Inferentia chip, and fetches the outputs.

SageMaker offers these chips for real-time endpoints, not for processing jobs. So a temporary endpoint runs the rows:
its container records them before it serves (containers/neuron/serve). The endpoint is in service when the outputs are
in S3, and is then deleted. The same archive, rows, image and instance type are recorded only once.
"""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aws_api.sagemaker import ENDPOINT_LOG, SageMakerAccount
from aws_api.temporary_endpoint import EndpointFailed, EndpointSpec, Sleep, temporary_endpoint
from model_build.progress import Progress, silent
from model_build.remote.remote_build import failure
from model_build.remote.request import BuildSite, job_name
from workloads import NeuronTarget, Unavailable, UsageError, WorkloadFolder, artifact_file, file_sha256, load_artifact
from workloads.instances import family

STARTUP_S = 1800


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """The endpoint and the files that it needs."""

    endpoint: EndpointSpec
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
    archive_url, rows_url, outputs = f"{base}/model.tar.gz", f"{base}/evaluation.jsonl", f"{base}/outputs.json"
    endpoint = EndpointSpec(
        name=job_name((workload.name, "record"), None, site.stamp),
        variant={"InstanceType": chip, "ContainerStartupHealthCheckTimeoutInSeconds": STARTUP_S},
        container={
            "Image": image_uri,
            "ModelDataUrl": archive_url,
            "Environment": {"RECORD_INPUT": rows_url, "RECORD_OUTPUT": outputs},
        },
        role_arn=site.role_arn,
        tags={"workload": workload.name, "target": variant_name},
    )
    uploads = {archive_url: archive, rows_url: rows}
    return Recording(endpoint=endpoint, uploads=uploads, outputs_url=outputs)


def record_on_chip(
    recording: Recording,
    output: Path,
    account: SageMakerAccount,
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
            account.upload_file(url, file)
        _serve_once(recording.endpoint, account, progress, sleep)
        if not account.exists(recording.outputs_url):
            raise Unavailable(
                f"{recording.endpoint.container['Image']} served the model but recorded nothing: it is older than this "
                "containers/neuron/serve. Build it again."
            )
    progress("Fetching the outputs")
    output.parent.mkdir(parents=True, exist_ok=True)
    account.download(recording.outputs_url, output)


def _serve_once(endpoint: EndpointSpec, account: SageMakerAccount, progress: Progress, sleep: Sleep) -> None:
    """Returns when the endpoint has been in service and is deleted."""
    group = ENDPOINT_LOG.format(endpoint=endpoint.name)
    try:
        with temporary_endpoint(account, endpoint, progress, sleep) as name:
            progress(f"{name} has recorded")
    except EndpointFailed as error:
        subject, described = f"The endpoint {endpoint.name}", {"FailureReason": error.reason}
        raise failure(account, subject, described, group) from error
