"""The processing jobs of a remote build, one for each machine that its target needs, and where they run.

TensorRT                    each GPU family of the target, in the SageMaker Triton image it is served from
Neuron                      a CPU instance in the Neuron image: compiling needs no Inferentia
ONNX Runtime, OpenVINO,
TorchScript                 a CPU instance in the PyTorch image; the build brings its own Python and torch
"""

import argparse
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from aws_api.errors import AwsUnavailable
from aws_api.processing_jobs import ProcessingJob
from aws_api.sagemaker import SageMakerAccount
from workloads import NeuronTarget, SageMakerEndpointHosting, Target, TensorRtTarget, UsageError, WorkloadFolder, images
from workloads.folder import with_settings
from workloads.images import GPU_DEFAULT
from workloads.instances import COMPUTE_CAPABILITIES, family, hardware
from workloads.target import NEURON_BUILD_INSTANCE

ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")
MAX_RUNTIME_S = 2 * 3600
STAND_IN_REGION = "us-east-1"
STAND_IN_ROLE = "arn:aws:iam::000000000000:role/ModelBuildRole"
VOLUME_GB = 60
LONGEST_NAME = 63
CPU_INSTANCE = "ml.c5.2xlarge"
BF16_INSTANCE = "ml.c7i.2xlarge"
IMAGE_OPTION = "--image-uri"

NO_DRIVER_CHOICE = (
    "{instance}: a processing job cannot choose its host's GPU driver, and AWS does not document it. The job ends in "
    "its first minute if the driver does not run the CUDA of {image}. Then choose an older hosting.triton_version, or "
    "build on an EC2 instance of that family in the image."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildSite:
    role_arn: str
    bucket: str
    region: str
    stamp: str
    """Makes the names of jobs and of their folders unique: letters, digits and hyphens, 20 at most."""
    instance_type: str | None = None
    """None selects the type that the target needs."""
    image_uri: str | None = None
    """None selects AWS's image of the target's runtime."""
    kms_key: str | None = None
    security_groups: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    max_runtime_s: int = MAX_RUNTIME_S


def build_site(
    folder: WorkloadFolder,
    account: SageMakerAccount,
    given: argparse.Namespace,
    stand_ins: dict[str, str] | None = None,
) -> BuildSite:
    """Takes the options of the command line, and asks AWS for the region and the bucket.

    Raises `UsageError` or `AwsUnavailable`.

    With `stand_ins`, as in a dry run, names stand in for unknown ones, and are added to it.
    """
    facts = with_settings(folder, given.settings).workload.recommender
    region = _known("region", lambda: account.region, STAND_IN_REGION, stand_ins)
    role = facts.role_arn or (None if stand_ins is None else stand_ins.setdefault("role_arn", STAND_IN_ROLE))
    if role is None or not ROLE.fullmatch(role):
        raise UsageError(
            f"recommender.role_arn: got {role or 'none'}. A processing job assumes an IAM role that trusts "
            "sagemaker.amazonaws.com and may use the bucket, the image and the logs. Add "
            "--set recommender.role_arn=arn:aws:iam::ACCOUNT:role/NAME."
        )
    if bool(facts.subnets) != bool(facts.security_groups):
        present, missing = ("subnets", "security_groups") if facts.subnets else ("security_groups", "subnets")
        raise UsageError(f"recommender.{present} is set without {missing}. A job in a VPC needs both.")
    return BuildSite(
        role_arn=role,
        bucket=facts.bucket or _known("bucket", account.default_bucket, f"sagemaker-{region}-000000000000", stand_ins),
        region=region,
        stamp=datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S"),
        instance_type=given.instance_type,
        image_uri=given.image_uri,
        kms_key=facts.kms_key_arn,
        security_groups=facts.security_groups,
        subnets=facts.subnets,
        max_runtime_s=getattr(given, "max_runtime_s", MAX_RUNTIME_S),
    )


def _known(key: str, read: Callable[[], str], stand_in: str, stand_ins: dict[str, str] | None) -> str:
    """Returns a fact that AWS knows, or in a dry run without AWS its stand-in."""
    try:
        return read()
    except AwsUnavailable:
        if stand_ins is None:
            raise
        return stand_ins.setdefault(key, stand_in)


def plan_remote(folder: WorkloadFolder, variant_name: str, site: BuildSite) -> tuple[ProcessingJob, ...]:
    """Returns a job for each machine; they share their source.

    Raises `UsageError` for a target, type or region that is not available.
    """
    target = folder.target(folder.variant(variant_name).target)
    image = site.image_uri or _image(folder, target, site.region)
    instances = _instances(target, site.instance_type)
    return tuple(_job(folder, variant_name, target, site, image, instance) for instance in instances)


def driver_warnings(jobs: Sequence[ProcessingJob]) -> list[str]:
    """Returns a warning for each job on a GPU."""
    on_gpu = [job for job in jobs if hardware(job.instance_type) == "GPU"]
    return [NO_DRIVER_CHOICE.format(instance=job.instance_type, image=job.image_uri) for job in on_gpu]


def triton_image(version: str, region: str, file: Path) -> str:
    """Returns the URI of SageMaker's Triton for GPUs in a yy.mm version that `file` names.

    Raises `UsageError` for a version or region without it, `Unavailable` without sagemaker-core.
    """
    published = images.triton_registries(IMAGE_OPTION)
    if version not in published:
        raise UsageError(
            f"{file}: hosting.triton_version: got '{version}', but sagemaker-core knows no such SageMaker Triton "
            f"image. Known: {', '.join(sorted(published))}. Choose one, or name an image with {IMAGE_OPTION}."
        )
    return images.image_uri(
        f"{images.TRITON}:{version}-py3", region, (images.TRITON, "versions", version), IMAGE_OPTION
    )


def _image(folder: WorkloadFolder, target: Target, region: str) -> str:
    if isinstance(target, NeuronTarget):
        name, registries = images.NEURON_IMAGES[target.runtime]
        return images.image_uri(name, region, registries, IMAGE_OPTION)
    if not isinstance(target, TensorRtTarget):
        return images.pytorch_cpu_image(region, IMAGE_OPTION)
    hosting = folder.workload.hosting
    if isinstance(hosting, SageMakerEndpointHosting) and hosting.image_uri:
        return hosting.image_uri
    version = folder.workload.triton_on(target.instance_types[0]) or GPU_DEFAULT
    return triton_image(version, region, folder.file)


def _instances(target: Target, requested: str | None) -> tuple[str, ...]:
    """Returns the types of the machines, with the requested one among them."""
    if requested is not None and (why := _unfit(target, requested)):
        raise UsageError(f"--instance-type: got '{requested}'. {why}")
    if isinstance(target, TensorRtTarget):
        by_engine = target.build_instances
        if requested:
            by_engine[COMPUTE_CAPABILITIES[family(requested)]] = requested
        return tuple(by_engine.values())
    if isinstance(target, NeuronTarget):
        return (requested or NEURON_BUILD_INSTANCE,)
    return (requested or (BF16_INSTANCE if target.precision == "bf16" else CPU_INSTANCE),)


def _unfit(target: Target, requested: str) -> str | None:
    """Returns the reason why a processing job of this target cannot use that type."""
    if not requested.startswith("ml."):
        return f"SageMaker's types begin with ml.: ml.{requested}."
    if re.match(r"(inf|trn)\d", family(requested)):
        return (
            "Processing jobs do not run on Inferentia or Trainium, and compiling needs neither: leave it out, or "
            f"choose a CPU type such as {NEURON_BUILD_INSTANCE}."
        )
    if isinstance(target, TensorRtTarget) and family(requested) not in target.families:
        return f"An engine is built on the GPU it is for, and this target is for {', '.join(target.families)}."
    return None


def _job(
    folder: WorkloadFolder, variant_name: str, target: Target, site: BuildSite, image: str, instance: str
) -> ProcessingJob:
    gpu = family(instance) if isinstance(target, TensorRtTarget) else None
    workload, published = folder.workload.name, folder.published_name
    base = f"s3://{site.bucket}/model-build/{workload}/{variant_name}/{site.stamp}"
    return ProcessingJob(
        name=job_name((workload, variant_name), gpu, site.stamp),
        role_arn=site.role_arn,
        image_uri=image,
        arguments=(workload, variant_name, target.runtime, *((published,) if published else ())),
        instance_type=instance,
        volume_gb=VOLUME_GB,
        source_url=f"{base}/source",
        output_name="built",
        output_url=f"{base}/{family(instance)}",
        max_runtime_s=site.max_runtime_s,
        environment=_failing_drivers(image) if gpu else {},
        tags={"workload": workload, "target": variant_name},
        kms_key=site.kms_key,
        security_groups=site.security_groups,
        subnets=site.subnets,
    )


def _failing_drivers(image: str) -> dict[str, str]:
    """Returns the variable that entry.py reads: it cannot import the table of drivers."""
    failing = images.failing_drivers(images.version_in(image))
    return {"FAILING_DRIVERS": json.dumps(failing)} if failing else {}


def job_name(parts: Sequence[str], gpu_family: str | None, stamp: str) -> str:
    """Returns workload, deployable, GPU and time; a long name is cut and gets a hash."""
    name = "-".join(parts).replace("_", "-")
    tail = "-".join(filter(None, (gpu_family, stamp)))
    longest = LONGEST_NAME - len(tail) - 1
    if len(name) > longest:
        name = f"{name[: longest - 7].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
    return f"{name}-{tail}"
