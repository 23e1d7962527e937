"""What an experiment measures: a cell for every variant on every instance type it can run on. Pure.

A variant runs on the hardware its target was compiled for: an engine on its GPU families, a Neuron graph on its chip,
anything else wherever there is the same kind of hardware as in the target's own `instance_types`.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from inference_recommender.experiment.errors import (
    NoSuchBaseline,
    NoSuchVariant,
    NotAnInstanceType,
    NothingToCompare,
    UnfitInstanceType,
)
from workloads import NeuronTarget, Target, TensorRtTarget, WorkloadFolder
from workloads.document import Document
from workloads.instances import NEURON_FAMILIES, instance_shape


class Cell(Document):
    variant: str
    """A deployable of the workload: a variant's name, or a target's."""
    instance_type: str

    def __str__(self) -> str:
        return f"{self.instance_type}/{self.variant}"


def cells(folder: WorkloadFolder, patterns: Sequence[str] = (), instance_types: Sequence[str] = ()) -> tuple[Cell, ...]:
    """In the order of the workload's file.

    `patterns` choose among the deployables as a shell does (ort-*); none chooses every variant, or every target where
    there are no variants. `instance_types` replace those of the targets. Raises `NoSuchVariant`, `NothingToCompare`,
    `NotAnInstanceType` or `UnfitInstanceType`.
    """
    variants = _variants(folder, patterns)
    for name in instance_types:
        if not name.startswith("ml.") or instance_shape(name) is None:
            raise NotAnInstanceType(name)
    found = tuple(
        Cell(variant=variant, instance_type=name)
        for variant in variants
        for name in _types(_target(folder, variant), instance_types)
    )
    for name in instance_types:
        if name not in {cell.instance_type for cell in found}:
            raise UnfitInstanceType(name, [f"{v} is for {_hardware(_target(folder, v))}." for v in variants])
    if not found:
        raise NothingToCompare(folder.file, variants)
    return found


def baseline_cell(named: str, among: Sequence[Cell]) -> Cell:
    """INSTANCE_TYPE, where it has one variant, or INSTANCE_TYPE/VARIANT. Raises `NoSuchBaseline`."""
    found = [cell for cell in among if named in (cell.instance_type, str(cell))]
    if len(found) != 1:
        raise NoSuchBaseline(named, [str(cell) for cell in among])
    return found[0]


def _variants(folder: WorkloadFolder, patterns: Sequence[str]) -> tuple[str, ...]:
    known = folder.workload.deployables
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise NoSuchVariant(folder.file, pattern, known)
    if patterns:
        return tuple(name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns))
    return tuple(folder.workload.variants) or tuple(folder.workload.targets)


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
            return family == NEURON_FAMILIES[target.runtime]
        case _:
            shape = instance_shape(instance_type)
            return shape is not None and shape.accelerator == _accelerator(target)


def _accelerator(target: Target) -> str:
    """Of the target's own first instance type; a CPU where it names none."""
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
