"""The processing jobs of a remote build: one for each machine that its target needs. Pure: nothing is sent.

In: a workload's folder, what to build, and where. Out: frozen `RemoteBuild`s with CreateProcessingJob requests.

    TensorRT                    each GPU family of the target, in the SageMaker Triton image it is served from
    Neuron                      a CPU instance in the Neuron image: compiling needs no Inferentia
    ONNX Runtime, TorchScript   a CPU instance in the PyTorch image

It does not know which GPU driver a processing instance starts with: AWS documents none, and no request chooses it.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from model_build.remote.errors import RefusedInstance
from model_build.remote.images import NEURON, PYTORCH_CPU, stock_image, triton_image
from model_build.remote.where import Where
from workloads import NeuronTarget, SageMakerEndpointHosting, Target, TensorRtTarget, WorkloadFolder

SOURCE, OUTPUT = "/opt/ml/processing/source", "/opt/ml/processing/output"
VOLUME_GB = 60
LONGEST_NAME = 63
NEURON_INSTANCE, CPU_INSTANCE = "ml.c5.4xlarge", "ml.c5.2xlarge"

NO_DRIVER_CHOICE = (
    "{instance}: a processing job cannot choose its host's GPU driver, and AWS does not document it. If {image} does "
    "not start there, choose an older hosting.triton_version, or build on an EC2 instance of that family in the image."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteBuild:
    request: dict[str, Any]
    """Of CreateProcessingJob."""
    warnings: tuple[str, ...]

    @property
    def job_name(self) -> str:
        return str(self.request["ProcessingJobName"])

    @property
    def instance_type(self) -> str:
        return str(self.request["ProcessingResources"]["ClusterConfig"]["InstanceType"])

    @property
    def source_url(self) -> str:
        """Where the job looks for `entry.py` and `source.tar.gz`; all jobs of one build share it."""
        return str(self.request["ProcessingInputs"][0]["S3Input"]["S3Uri"])

    @property
    def output_url(self) -> str:
        return str(self.request["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3Uri"])

    @property
    def kms_key(self) -> str | None:
        key: str | None = self.request["ProcessingOutputConfig"].get("KmsKeyId")
        return key

    @property
    def max_runtime_s(self) -> int:
        return int(self.request["StoppingCondition"]["MaxRuntimeInSeconds"])


def plan_remote(folder: WorkloadFolder, variant_name: str, where: Where) -> tuple[RemoteBuild, ...]:
    """Raises `UnknownTarget`, `RefusedInstance`, or what `images` raises where no image is named."""
    target = folder.target(folder.variant(variant_name).target)
    image = where.image_uri or _image(folder, target, where.region)
    instances = _instances(target, where.instance_type)
    return tuple(_build(folder, variant_name, target, where, image, instance) for instance in instances)


def dry_run_document(builds: Sequence[RemoteBuild]) -> dict[str, Any]:
    """As `--dry-run` prints it."""
    return {
        "requests": [build.request for build in builds],
        "warnings": [warning for build in builds for warning in build.warnings],
    }


def _image(folder: WorkloadFolder, target: Target, region: str) -> str:
    if isinstance(target, NeuronTarget):
        framework = getattr(folder.workload.model, "framework", "pytorch")
        return stock_image(NEURON[target.runtime, framework], region)
    if not isinstance(target, TensorRtTarget):
        return stock_image(PYTORCH_CPU, region)
    hosting = folder.workload.hosting
    if not isinstance(hosting, SageMakerEndpointHosting):
        return triton_image(SageMakerEndpointHosting.model_fields["triton_version"].default, region, folder.file)
    return hosting.image_uri or triton_image(hosting.triton_version, region, folder.file)


def _instances(target: Target, wanted: str | None) -> tuple[str, ...]:
    """The machines that are needed, the wanted type among them."""
    if wanted is not None:
        _refuse(target, wanted)
    if isinstance(target, TensorRtTarget):
        return tuple(wanted if wanted and _family(wanted) == f else f"ml.{f}.xlarge" for f in target.families)
    return (wanted or (NEURON_INSTANCE if isinstance(target, NeuronTarget) else CPU_INSTANCE),)


def _refuse(target: Target, wanted: str) -> None:
    if not wanted.startswith("ml."):
        raise RefusedInstance(wanted, f"SageMaker's types begin with ml.: ml.{wanted}.")
    if re.match(r"(inf|trn)\d", _family(wanted)):
        raise RefusedInstance(
            wanted,
            "Processing jobs do not run on Inferentia or Trainium, and compiling needs neither: leave it out, or "
            f"choose a CPU type such as {NEURON_INSTANCE}.",
        )
    if isinstance(target, TensorRtTarget) and _family(wanted) not in target.families:
        raise RefusedInstance(
            wanted, f"An engine is built on the GPU it is for, and this target is for {', '.join(target.families)}."
        )


def _build(
    folder: WorkloadFolder,
    variant_name: str,
    target: Target,
    where: Where,
    image: str,
    instance: str,
) -> RemoteBuild:
    gpu = _family(instance) if isinstance(target, TensorRtTarget) else None
    workload = folder.workload.name
    base = f"s3://{where.bucket}/model-build/{workload}/{variant_name}/{where.stamp}"
    request = {
        "ProcessingJobName": job_name((workload, variant_name), gpu, where.stamp),
        "RoleArn": where.role_arn,
        "AppSpecification": {
            "ImageUri": image,
            "ContainerEntrypoint": ["python3", f"{SOURCE}/entry.py"],
            "ContainerArguments": [workload, variant_name, target.runtime],
        },
        "ProcessingResources": {"ClusterConfig": _cluster(instance, where.kms_key)},
        "ProcessingInputs": [_source(f"{base}/source")],
        "ProcessingOutputConfig": _output(f"{base}/{_family(instance)}", where.kms_key),
        "StoppingCondition": {"MaxRuntimeInSeconds": where.max_runtime_s},
        "Environment": {"PYTHONUNBUFFERED": "1"},
        "Tags": [{"Key": "workload", "Value": workload}, {"Key": "target", "Value": variant_name}],
        **_network(where),
    }
    return RemoteBuild(request=request, warnings=tuple(_warnings(target, instance, image)))


def _warnings(target: Target, instance: str, image: str) -> Iterator[str]:
    if isinstance(target, TensorRtTarget):
        yield NO_DRIVER_CHOICE.format(instance=instance, image=image)


def _source(url: str) -> dict[str, Any]:
    s3 = {
        "S3Uri": url,
        "LocalPath": SOURCE,
        "S3DataType": "S3Prefix",
        "S3InputMode": "File",
        "S3DataDistributionType": "FullyReplicated",
        "S3CompressionType": "None",
    }
    return {"InputName": "source", "S3Input": s3}


def _output(url: str, kms_key: str | None) -> dict[str, Any]:
    built = {"S3Uri": url, "LocalPath": OUTPUT, "S3UploadMode": "EndOfJob"}
    outputs = {"Outputs": [{"OutputName": "built", "S3Output": built}]}
    return outputs | ({"KmsKeyId": kms_key} if kms_key else {})


def _cluster(instance: str, kms_key: str | None) -> dict[str, Any]:
    cluster = {"InstanceCount": 1, "InstanceType": instance, "VolumeSizeInGB": VOLUME_GB}
    # A disk inside the instance is encrypted by its own hardware; the service refuses a key for it.
    own_disk = re.fullmatch(r"g5|[a-z]+\d+[a-z]*d[a-z]*", _family(instance))
    return cluster | ({"VolumeKmsKeyId": kms_key} if kms_key and not own_disk else {})


def _network(where: Where) -> dict[str, Any]:
    if not where.subnets:
        return {}
    vpc = {"SecurityGroupIds": list(where.security_groups), "Subnets": list(where.subnets)}
    return {"NetworkConfig": {"VpcConfig": vpc}}


def job_name(parts: Sequence[str], family: str | None, stamp: str) -> str:
    """The workload, what is built, the GPU and the time; what is too long is cut and told apart by a hash."""
    name = "-".join(parts).replace("_", "-")
    tail = "-".join(filter(None, (family, stamp)))
    room = LONGEST_NAME - len(tail) - 1
    if len(name) > room:
        name = f"{name[: room - 7].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
    return f"{name}-{tail}"


def _family(instance_type: str) -> str:
    return instance_type.removeprefix("ml.").split(".")[0]
