"""The cells of an experiment: each variant on each instance type on which it can run. Pure.

A TensorRT engine runs on its GPU families, a Neuron graph on its chip, and anything else on the kind of hardware of its
target's `instance_types`.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from workloads import NeuronTarget, Target, TensorRtTarget, UsageError, WorkloadFolder
from workloads.document import Document
from workloads.instances import NEURON_FAMILIES, instance_shape

CORES_PER_CHIP = 4
"""NeuronCores of an Inf1 chip. A pipeline needs Inf1."""


class Cell(Document):
    variant: str
    """A deployable of the workload: a variant's name, or a target's."""
    instance_type: str

    def __str__(self) -> str:
        return f"{self.instance_type}/{self.variant}"


def cells(folder: WorkloadFolder, patterns: Sequence[str] = (), instance_types: Sequence[str] = ()) -> tuple[Cell, ...]:
    """Returns the cells in the order of the workload's file. Raises `UsageError`.

    `patterns` choose among the deployables as a shell does (ort-*); without one, every variant is chosen, or every
    target where there are no variants. `instance_types` replace those of the targets.
    """
    variants = _variants(folder, patterns)
    _refuse_small_batches(folder, variants)
    for name in instance_types:
        if not name.startswith("ml.") or instance_shape(name) is None:
            raise UsageError(
                f"--instance-types: got '{name}', which is not an instance type of SageMaker endpoints. Example: "
                "ml.c5.xlarge."
            )
    chosen = tuple(
        Cell(variant=variant, instance_type=name)
        for variant in variants
        for name in _types(_target(folder, variant), instance_types)
    )
    for name in instance_types:
        if name not in {cell.instance_type for cell in chosen}:
            fits = " ".join(f"{variant} is for {_hardware(_target(folder, variant))}." for variant in variants)
            raise UsageError(f"--instance-types: got '{name}', on which none of the chosen variants runs. {fits}")
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


def _refuse_small_batches(folder: WorkloadFolder, variants: Sequence[str]) -> None:
    """Raises `UsageError` for a variant that would reject every request."""
    rows = folder.workload.latency_objective.rows_per_invocation
    for name in variants:
        if rows > (most := folder.workload.variant(name).serving.max_batch_size):
            raise UsageError(
                f"{folder.file}: rows_per_invocation: got {rows}, and a request to '{name}' has at most {most} rows, "
                "its serving.max_batch_size. Raise that, or leave the variant out with --variants."
            )


def _target(folder: WorkloadFolder, variant: str) -> Target:
    return folder.workload.targets[folder.workload.variant(variant).target]


def _types(target: Target, wanted: Sequence[str]) -> tuple[str, ...]:
    if wanted:
        return tuple(name for name in dict.fromkeys(wanted) if _runs_on(target, name))
    return tuple(name for name in target.instance_types if name.startswith("ml."))


def _runs_on(target: Target, instance_type: str) -> bool:
    family = instance_type.removeprefix("ml.").split(".")[0]
    match target:
        case TensorRtTarget():
            return family in target.families
        case NeuronTarget():
            return family == NEURON_FAMILIES[target.runtime] and _has_the_cores(target, instance_type)
        case _:
            shape = instance_shape(instance_type)
            return shape is not None and shape.accelerator == _accelerator(target)


def _has_the_cores(target: NeuronTarget, instance_type: str) -> bool:
    """Returns whether a pipeline fits. An automatic one fits the smallest of the target's own types."""
    shape = instance_shape(instance_type)
    if shape is None or target.pipeline_cores == 1:
        return shape is not None
    if target.pipeline_cores != "auto":
        return shape.neuron_chips * CORES_PER_CHIP >= target.pipeline_cores
    own = [own for name in target.instance_types if (own := instance_shape(name)) is not None]
    return shape.neuron_chips >= min((one.neuron_chips for one in own), default=0)


def _accelerator(target: Target) -> str:
    """Returns the accelerator of the target's first instance type, or a CPU without one."""
    shape = instance_shape(target.instance_types[0]) if target.instance_types else None
    return shape.accelerator if shape else "CPU"


def _hardware(target: Target) -> str:
    match target:
        case TensorRtTarget():
            return " and ".join(f"ml.{family}" for family in target.families)
        case NeuronTarget():
            return f"ml.{NEURON_FAMILIES[target.runtime]}"
        case _:
            return {"GPU": "a GPU", "CPU": "a CPU", "Neuron": "Inferentia"}[_accelerator(target)]
