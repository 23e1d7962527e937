"""An experiment as one value: its cells, and the batches that measure the remaining ones. Pure.

A cell is a variant on an instance type on which it can run: a TensorRT engine on its GPU families, a Neuron graph on
its chip, anything else on the kind of hardware of its target's `instance_types`. A job tests one model on at most ten
endpoint configurations, so each variant has a job, or several.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from itertools import count
from typing import Literal, Self

from aws_api.expiry import GRACE_S
from inference_recommender.measure.job_requests import JobPlan, TestedModel, plan_job
from inference_recommender.measurement import Measurement
from workloads import NeuronTarget, Target, TensorRtTarget, UsageError, Workload, WorkloadFolder
from workloads.document import Document
from workloads.instances import NEURON_FAMILIES, family, instance_shape

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

    def lifetime(self, experiment: "Experiment", workload: Workload) -> timedelta:
        return len(self.instance_types) * cell_lifetime(experiment, workload)

    def failed(self, instance_type: str, why: str) -> Measurement:
        """Returns the measurement of a cell whose test failed."""
        return Measurement(
            instance_type=instance_type,
            variant=self.variant,
            endpoint_name=self.name,
            max_invocations_per_minute=None,
            model_latency_ms=None,
            failure_reason=why,
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


def cells(folder: WorkloadFolder, patterns: Sequence[str] = (), instance_types: Sequence[str] = ()) -> tuple[Cell, ...]:
    """Returns the cells in the order of the workload's file. Raises `UsageError`.

    `patterns` choose among the deployables as a shell does (ort-*); without one, every variant is chosen, or every
    target where there are no variants. `instance_types` replace those of the targets.
    """
    workload = folder.workload
    variants = _variants(folder, patterns)
    rows = workload.latency_objective.rows_per_invocation
    for name in variants:
        if rows > (most := workload.variant(name).serving.max_batch_size):
            raise UsageError(
                f"{folder.file}: rows_per_invocation: got {rows}, and a request to '{name}' has at most {most} rows, "
                "its serving.max_batch_size. Raise that, or leave the variant out with --variants."
            )
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
    return tuple(folder.workload.variants) or tuple(folder.workload.targets)


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
            return shape.accelerator == next((each.accelerator for each in own if each), "CPU")
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


def cell_lifetime(experiment: Experiment, workload: Workload) -> timedelta:
    """Returns the longest duration of a cell's test. Its resources may be deleted after that."""
    return timedelta(seconds=workload.traffic[experiment.traffic].duration_s + GRACE_S)
