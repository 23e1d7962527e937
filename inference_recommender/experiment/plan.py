"""An experiment as one value: its cells, the batches that measure the remaining ones, and their images and models.

A cell is a variant on an instance type on which it can run: a TensorRT engine on its GPU families, a Neuron graph on
its chip, anything else on the kind of hardware of its target's `instance_types`. A job tests one model on at most ten
endpoint configurations, so each variant has a job, or several.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import Any, Literal, Self, cast

from aws_api.expiry import GRACE_S, expiry_tag
from aws_api.sagemaker import SageMakerAccount
from inference_recommender.measure.job import PAYLOAD_PREFIX, payload_key
from inference_recommender.measure.job_requests import JobPlan, TestedModel, plan_job
from inference_recommender.measurement import Measurement
from inference_recommender.sizing.prices import PriceList
from workloads import (
    ROOT,
    ModelArtifact,
    NeuronTarget,
    Target,
    TensorRtTarget,
    UsageError,
    Workload,
    WorkloadFolder,
    own_images,
)
from workloads import images as aws_images
from workloads.document import Document
from workloads.instances import NEURON_FAMILIES, family, hardware, has_accelerator, has_bf16, instance_shape

Platform = Literal["cpu", "gpu", "gpu-torch", "inf1", "inf2"]
"""Kinds of hardware, each with its own image. gpu-torch has PyTorch for `cuda` targets."""
RUNTIMES = {name: runtime for runtime, name in NEURON_FAMILIES.items()}
LARGEST_JOB = 10
LONGEST_NAME = 63
CORES_PER_CHIP = 4
"""NeuronCores of an Inf1 chip. A pipeline needs Inf1."""


class Cell(Document):
    variant: str
    """A deployable of the workload: a variant's name, or a target's."""
    instance_type: str

    def __str__(self) -> str:
        return f"{self.instance_type}/{self.variant}"

    @classmethod
    def of(cls, measured: Measurement) -> Self:
        return cls(variant=measured.variant or "", instance_type=measured.instance_type)


class CellBatch(Document):
    """Cells of one variant that one job measures with one model."""

    name: str
    """Names the job, the model it tests and its folder."""
    variant: str
    instance_types: tuple[str, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(Cell(variant=self.variant, instance_type=name) for name in self.instance_types)

    def failed(self, instance_type: str, why: str) -> Measurement:
        """Returns the measurement of a cell whose test failed."""
        return Measurement(
            instance_type=instance_type, variant=self.variant, endpoint_name=self.name, failure_reason=why
        )


class Experiment(Document):
    """Contents of `experiment.json`."""

    name: str
    workload: str
    traffic: str
    load: Literal["sagemaker", "load-test"] = "sagemaker"
    """Inference Recommender's jobs, or this project's load generator on temporary endpoints."""
    archives: dict[str, str]
    """sha256 of each variant's archive."""
    cells: tuple[Cell, ...]
    baseline: Cell | None = None
    published: str | None = None
    """The workload's [published.NAME] that is measured."""
    prices: PriceList = "sagemaker"
    rows: dict[str, int] = {}
    """Rows of each request by variant; [objective]'s if a variant is not among them."""

    def workload_of(self, variant: str, workload: Workload) -> Workload:
        """Returns the workload with the variant's requests. The same rows need fewer of them at the peak."""
        objective, rows = workload.latency_objective, self.rows.get(variant)
        if rows is None or rows == objective.rows_per_invocation:
            return workload
        share = objective.rows_per_invocation / rows
        changes = {
            "rows_per_invocation": rows,
            "peak_invocations_per_minute": max(1, math.ceil(objective.peak_invocations_per_minute * share)),
            "trough_invocations_per_minute": math.floor(objective.trough_invocations_per_minute * share),
        }
        return workload.model_copy(update={"objective": objective.model_copy(update=changes)})


def cells(folder: WorkloadFolder, patterns: Sequence[str] = (), instance_types: Sequence[str] = ()) -> tuple[Cell, ...]:
    """Returns the cells in the order of the workload's file. Raises `UsageError`.

    `patterns` choose among the deployables as a shell does (ort-*); without one, every variant is chosen if
    the hosted one is a variant, else every target. `instance_types` replace those of the targets.
    """
    workload = folder.workload
    variants = _variants(folder, patterns)
    targets = {variant: workload.targets[workload.variant(variant).target] for variant in variants}
    chosen = tuple(
        Cell(variant=variant, instance_type=name)
        for variant, target in targets.items()
        for name in (dict.fromkeys(instance_types) or target.instance_types)
        if name.startswith("ml.") and (not instance_types or _runs_on(target, name))
    )
    for name in instance_types:
        if name not in {cell.instance_type for cell in chosen}:
            named = dict.fromkeys(own for target in targets.values() for own in target.instance_types)
            raise UsageError(
                f"--instance-types: got '{name}', on which none of the chosen variants runs. Their targets are for "
                f"{', '.join(named)}."
            )
    if not chosen:
        raise UsageError(
            f"{folder.file}: no cell is left: the targets of {', '.join(variants)} name no instance type of SageMaker "
            "(ml.…). Add instance_types to the target, or name types with --instance-types."
        )
    return chosen


def baseline_cell(named: str, among: Sequence[Cell]) -> Cell:
    """Finds INSTANCE_TYPE/VARIANT, or INSTANCE_TYPE where that has one variant. Raises `UsageError`."""
    matching = [cell for cell in among if named in (cell.instance_type, str(cell))]
    if len(matching) != 1:
        raise UsageError(
            f"--baseline: '{named}' is not one cell of this experiment. Name one as INSTANCE_TYPE/VARIANT: "
            f"{', '.join(str(cell) for cell in among)}."
        )
    return matching[0]


def _variants(folder: WorkloadFolder, patterns: Sequence[str]) -> tuple[str, ...]:
    known = folder.workload.deployables
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise UsageError(f"--variants: '{pattern}' is none of {folder.file}. Known: {', '.join(known)}.")
    if patterns:
        return tuple(name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns))
    workload = folder.workload
    return tuple(workload.variants if workload.hosting.target in workload.variants else workload.targets)


def _runs_on(target: Target, instance_type: str) -> bool:
    shape, own = instance_shape(instance_type), [instance_shape(name) for name in target.instance_types]
    if shape is None:
        return False
    match target:
        case TensorRtTarget():
            return family(instance_type) in target.families
        case NeuronTarget(pipeline_cores="auto"):  # it was cut for the smallest of its own types
            chips = min((each.neuron_chips for each in own if each), default=0)
        case NeuronTarget(pipeline_cores=int(cores)):
            chips = 0 if cores == 1 else -(-cores // CORES_PER_CHIP)
        case _:
            kinds = set(map(hardware, target.instance_types)) or {"x86 CPU"}
            needs_bf16 = getattr(target, "instruction_sets", ())
            return hardware(instance_type) in kinds and (not needs_bf16 or has_bf16(instance_type))
    return family(instance_type) == NEURON_FAMILIES[target.runtime] and shape.neuron_chips >= chips


def batches(experiment: Experiment, left: Sequence[Cell], taken: Collection[str]) -> tuple[CellBatch, ...]:
    """Returns the batches that measure the cells `left`, with names that are not `taken`."""
    names = set(taken)
    planned = []
    for variant in dict.fromkeys(cell.variant for cell in left):
        types = tuple(cell.instance_type for cell in left if cell.variant == variant)
        for first in range(0, len(types), LARGEST_JOB):
            name = next(name for number in count(1) if (name := _name(experiment, variant, number)) not in names)
            names.add(name)
            planned.append(CellBatch(name=name, variant=variant, instance_types=types[first : first + LARGEST_JOB]))
    return tuple(planned)


def _name(experiment: Experiment, variant: str, number: int) -> str:
    tail = "" if number == 1 else f"-{number}"
    return f"{experiment.name}-{variant}"[: LONGEST_NAME - len(tail)].rstrip("-") + tail


def job_plan(experiment: Experiment, batch: CellBatch, workload: Workload, tested: TestedModel) -> JobPlan:
    """Returns the advanced job of a batch: its variant as the hosted one, and its instance types as candidates."""
    target = workload.variant(batch.variant).target
    candidates = {"instance_types": batch.instance_types}
    changes = {
        "targets": {**workload.targets, target: workload.targets[target].model_copy(update=candidates)},
        "hosting": workload.hosting.model_copy(update={"target": batch.variant}),
    }
    traffic = workload.traffic[experiment.traffic]
    return plan_job(workload.model_copy(update=changes), experiment.traffic, traffic, tested, batch.name)


def lifetime(experiment: Experiment, workload: Workload, cell_count: int = 1) -> timedelta:
    """Returns the longest duration of the tests of some cells. Their resources may be deleted after that."""
    return cell_count * timedelta(seconds=workload.traffic[experiment.traffic].duration_s + GRACE_S)


class ExperimentAccess(Document):
    """The role, images and bucket of an experiment in its account."""

    role_arn: str
    """Role of the jobs and the models' containers. It reads archives and payloads, and pulls images."""
    images: dict[Platform, str]
    """The container image of each kind of hardware."""
    bucket: str
    host_amis: dict[str, str] = {}
    """InferenceAmiVersion by instance type in load tests. A job of Inference Recommender cannot choose it."""

    def tested_model(self, workload: Workload, model_name: str) -> TestedModel:
        url = f"s3://{self.bucket}/{payload_key(workload)}"
        return TestedModel(model=model_name, role_arn=self.role_arn, payload_url=url)

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
                "Image": self.images[platform(batch.instance_types[0], artifact.runtime)],
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


def platform(instance_type: str, runtime: str) -> Platform:
    name = family(instance_type)
    if name in RUNTIMES:
        return cast(Platform, name)
    return "gpu-torch" if runtime == "cuda" else "gpu" if has_accelerator(instance_type) else "cpu"


def images(
    cells: Iterable[Cell], workload: Workload, named: Mapping[Any, str], default: Callable[[str, str], str]
) -> dict[Platform, str]:
    """Returns the image of each platform: the `named` one, that named "all", or the `default` of a type and runtime."""
    known: dict[Platform, str] = {}
    for cell in cells:
        runtime = workload.targets[workload.variant(cell.variant).target].runtime
        if (kind := platform(cell.instance_type, runtime)) not in known:
            known[kind] = named.get(kind) or named.get("all") or default(cell.instance_type, runtime)
    return known


def default_image(
    workload: Workload, instance_type: str, runtime: str, account: SageMakerAccount, root: Path = ROOT
) -> str:
    """Returns the stack's image if it runs on the type, or the project's own one. Raises `UsageError`."""
    hosted, wanted = platform(workload.instance_types[0], workload.hosted.runtime), platform(instance_type, runtime)
    if hosted == wanted or (hosted, wanted) == ("gpu", "cpu"):  # Triton's image for GPUs also runs on CPUs
        return str(account.model(account.stack_output(workload.stack_name, "ModelName"))["PrimaryContainer"]["Image"])
    kind = _image_kind(workload, instance_type, runtime)
    built = own_images.load_image(root, kind)
    if built and (built.content, built.region) == (own_images.content_of(kind), account.region):
        return built.uri
    raise UsageError(
        f"recommender.images: {instance_type} needs another image than the stack's model, and no image of what "
        f"containers/ has now was pushed to {account.region}. Build and push it with `bash "
        f"scripts/release/build_image.sh {kind}`, or set recommender.images.{wanted}."
    )


def placeholder_image(workload: Workload, instance_type: str, runtime: str) -> str:
    """Returns the name of the project's own image in a dry run without an account."""
    return (
        f"ACCOUNT.dkr.ecr.REGION.amazonaws.com/{own_images.REPOSITORY}:{_image_kind(workload, instance_type, runtime)}"
    )


def _image_kind(workload: Workload, instance_type: str, runtime: str) -> str:
    return own_images.endpoint_kind(runtime, workload.triton_on(instance_type), instance_type)


def host_ami(workload: Workload, chosen: Mapping[Platform, str], instance_type: str) -> str | None:
    """Returns the InferenceAmiVersion of an instance type: [recommender]'s, or what its image needs."""
    if hardware(instance_type) != "GPU" or (image := chosen.get("gpu") or chosen.get("gpu-torch")) is None:
        return None
    version = aws_images.version_in(image) or workload.triton_on(instance_type)
    return workload.recommender.host_ami or aws_images.host_ami(version, instance_type)


def types_without_job(workload: Workload, cells: Iterable[Cell]) -> list[str]:
    """Returns the types whose default GPU driver does not start the image, so that no job can test them."""
    images, types = workload.recommender.images, [cell.instance_type for cell in cells]
    if named := images.get("gpu") or images.get("all"):
        version = aws_images.version_in(named)
        return [name for name in dict.fromkeys(types) if aws_images.starts(version, name) is False]
    return workload.failing_hosts(types)
