"""An experiment as one value, and the batches that measure its remaining cells. Pure.

A job tests one model on at most ten endpoint configurations. So each variant has a job, or several.
"""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from itertools import count
from typing import Literal

from aws_api.expiry import GRACE_S
from inference_recommender.experiment.cells import Cell
from inference_recommender.measure.job_requests import JobPlan, TestedModel, plan_job
from inference_recommender.measurement import Measurement
from workloads import Workload
from workloads.document import Document

LARGEST_JOB = 10
LONGEST_NAME = 63


class CellBatch(Document):
    """Cells of one variant that one job measures with one model."""

    name: str
    """Names the job, the model it tests and its folder."""
    variant: str
    instance_types: tuple[str, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(Cell(variant=self.variant, instance_type=name) for name in self.instance_types)


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


def batches(experiment: Experiment, left: Sequence[Cell], taken: Collection[str]) -> tuple[CellBatch, ...]:
    """Returns the batches that measure the cells `left`, with names that are not `taken`."""
    names = set(taken)
    planned = []
    for variant in dict.fromkeys(cell.variant for cell in left):
        types = tuple(cell.instance_type for cell in left if cell.variant == variant)
        for first in range(0, len(types), LARGEST_JOB):
            name = next(name for name in _names(experiment.name, variant) if name not in names)
            names.add(name)
            planned.append(CellBatch(name=name, variant=variant, instance_types=types[first : first + LARGEST_JOB]))
    return tuple(planned)


def job_plan(experiment: Experiment, batch: CellBatch, workload: Workload, tested: TestedModel) -> JobPlan:
    """Returns the advanced job of a batch."""
    traffic = workload.traffic[experiment.traffic]
    return plan_job(as_hosted(workload, batch), experiment.traffic, traffic, tested, batch.name)


def lifetime(experiment: Experiment, batch: CellBatch, workload: Workload) -> timedelta:
    """Returns the longest duration of a batch. Its resources may be deleted after that."""
    return len(batch.instance_types) * cell_lifetime(experiment, workload)


def cell_lifetime(experiment: Experiment, workload: Workload) -> timedelta:
    return timedelta(seconds=workload.traffic[experiment.traffic].duration_s + GRACE_S)


def as_hosted(workload: Workload, batch: CellBatch) -> Workload:
    """Returns the workload with the batch's variant as hosted, and its instance types as candidates."""
    target = workload.variant(batch.variant).target
    candidates = workload.targets[target].model_copy(update={"instance_types": batch.instance_types})
    hosting = workload.hosting.model_copy(update={"target": batch.variant})
    return workload.model_copy(update={"targets": {**workload.targets, target: candidates}, "hosting": hosting})


def failed(batch: CellBatch, instance_type: str, why: str) -> Measurement:
    """Returns the measurement of a cell whose test failed."""
    return Measurement(
        instance_type=instance_type,
        variant=batch.variant,
        endpoint_name=batch.name,
        max_invocations_per_minute=None,
        model_latency_ms=None,
        failure_reason=why,
    )


def _names(experiment: str, variant: str) -> Iterator[str]:
    """Yields EXPERIMENT-VARIANT, then …-2 and so on. Long names are cut and end in a hash."""
    for number in count(1):
        tail = "" if number == 1 else f"-{number}"
        name = f"{experiment}-{variant}"
        most = LONGEST_NAME - len(tail)
        if len(name) > most:
            name = f"{name[: most - 7].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
        yield name + tail
