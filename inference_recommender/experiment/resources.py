"""The role, images and bucket of an experiment, and the model of each batch."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, cast, get_args

from aws_api.expiry import expiry_tag
from aws_api.sagemaker import SageMakerAccount
from inference_recommender.experiment.plan import Cell, CellBatch
from inference_recommender.measure.job import PAYLOAD_PREFIX, payload_key
from inference_recommender.measure.job_requests import TestedModel
from workloads import ROOT, ModelArtifact, SageMakerEndpointHosting, UsageError, Workload, own_images
from workloads.document import Document
from workloads.instances import HOST_AMIS, NEURON_FAMILIES, family, has_accelerator

Platform = Literal["cpu", "gpu", "inf1", "inf2"]
"""Kinds of hardware, each with its own image."""
PLATFORMS: tuple[Platform, ...] = get_args(Platform)
RUNTIMES = {name: runtime for runtime, name in NEURON_FAMILIES.items()}


class ExperimentAccess(Document):
    """The role, images and bucket of an experiment in its account."""

    role_arn: str
    """Role of the jobs and the models' containers. It reads archives and payloads, and pulls images."""
    images: dict[Platform, str]
    """The container image of each kind of hardware."""
    bucket: str
    host_ami: str | None = None
    """InferenceAmiVersion of GPU instances in load tests. A job of Inference Recommender cannot choose it."""

    def tested_model(self, workload: str, model_name: str) -> TestedModel:
        return TestedModel(
            model=model_name, role_arn=self.role_arn, payload_url=f"s3://{self.bucket}/{payload_key(workload)}"
        )

    def archive_url(self, artifact: ModelArtifact) -> str:
        """Returns a URL with the archive's hash, which the stack's recommender role may read."""
        return f"s3://{self.bucket}/{PAYLOAD_PREFIX}/{artifact.workload}/models/{artifact.archive_sha256}.tar.gz"

    def model_request(self, batch: CellBatch, artifact: ModelArtifact, expires_at: datetime) -> dict[str, Any]:
        """Returns the request of CreateModel. The cleanup may delete the model from `expires_at` on."""
        return {
            "ModelName": batch.name,
            "ExecutionRoleArn": self.role_arn,
            "EnableNetworkIsolation": True,
            "PrimaryContainer": {
                "Image": self.images[platform(batch.instance_types[0])],
                "ModelDataUrl": self.archive_url(artifact),
                "Environment": {
                    "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": artifact.default_model,
                    "SAGEMAKER_TRITON_LOG_VERBOSE": "false",  # the image logs every request by default
                    **artifact.environment,
                },
            },
            "Tags": [
                {"Key": "workload", "Value": artifact.workload},
                {"Key": "variant", "Value": artifact.variant},
                expiry_tag(expires_at),
            ],
        }


def platform(instance_type: str) -> Platform:
    name = family(instance_type)
    if name in RUNTIMES:
        return cast(Platform, name)
    return "gpu" if has_accelerator(instance_type) else "cpu"


def images(cells: Iterable[Cell], named: Mapping[Any, str], default: Callable[[str], str]) -> dict[Platform, str]:
    """Returns the image of each platform of `cells`: the `named` one, the one named "all", or the `default` of one of
    its instance types.
    """
    known: dict[Platform, str] = {}
    for cell in cells:
        if (kind := platform(cell.instance_type)) not in known:
            known[kind] = named.get(kind) or named.get("all") or default(cell.instance_type)
    return known


def default_image(workload: Workload, instance_type: str, account: SageMakerAccount, root: Path = ROOT) -> str:
    """Returns the image of the stack's model if it runs on the type, or the project's own image that was pushed last.

    Raises `UsageError` or `AwsUnavailable`.
    """
    hosted, wanted = platform(workload.instance_types[0]), platform(instance_type)
    if hosted == wanted or (hosted, wanted) == ("gpu", "cpu"):  # Triton's image for GPUs also runs on CPUs
        return account.image_uri(account.stack_output(workload.stack_name, "ModelName"))
    kind = _image_kind(workload, instance_type)
    built = own_images.load_image(root, kind)
    if built and (built.content, built.region) == (own_images.content_of(kind), account.region):
        return built.uri
    raise UsageError(
        f"recommender.images: {instance_type} needs another image than the stack's model, and no image of what "
        f"containers/ has now was pushed to {account.region}. Build and push it with `bash "
        f"scripts/release/build_image.sh {kind}`, or set recommender.images.{wanted}."
    )


def placeholder_image(workload: Workload, instance_type: str) -> str:
    """Returns the name of the project's own image in a dry run without an account."""
    return f"ACCOUNT.dkr.ecr.REGION.amazonaws.com/{own_images.REPOSITORY}:{_image_kind(workload, instance_type)}"


def _image_kind(workload: Workload, instance_type: str) -> str:
    version = _triton_version(workload) or SageMakerEndpointHosting.model_fields["triton_version"].default
    return own_images.endpoint_kind(RUNTIMES.get(platform(instance_type), "triton"), version, instance_type)


def host_ami(workload: Workload, chosen: Mapping[Platform, str]) -> str | None:
    """Returns the InferenceAmiVersion for the GPU image, by the version in its tag or by the hosting's.

    Returns None without a cell on a GPU, or for an unknown version.
    """
    if "gpu" not in chosen:
        return None
    tagged = re.search(r":(\d\d\.\d\d)-py3", chosen["gpu"])
    return HOST_AMIS.get(tagged[1] if tagged else _triton_version(workload) or "")


def _triton_version(workload: Workload) -> str | None:
    hosting = workload.hosting
    return hosting.triton_version if isinstance(hosting, SageMakerEndpointHosting) else None
