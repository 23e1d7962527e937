"""An experiment's folder: its plan, a run folder for each job, and a file for each finished cell.

A cell with a file need not be measured again. The folder reads as a run's: `workload.json` and `measurements.json` have
all measurements so far.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from inference_recommender.experiment.cells import Cell
from inference_recommender.experiment.plan import CellBatch, Experiment
from inference_recommender.experiment.resources import ExperimentAccess
from inference_recommender.measure.job_requests import traffic_pattern
from inference_recommender.measurement import Measurement
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.decision import why_invalid
from workloads import LatencyObjective, UsageError, Workload
from workloads.document import Document


class ExperimentOrigin(Document):
    """Place and time of the measurements."""

    measured_on: Literal["sagemaker", "local"]
    """"local" if an account on this machine replaced SageMaker."""
    machine: str
    region: str
    measured_at: str
    """The end of the last job, ISO 8601 in UTC."""


class ExperimentFolder(RunFolder):
    """Files: experiment.json, access.json, origin.json, cells/VARIANT/INSTANCE_TYPE.json, jobs/NAME/ with batch.json
    and a run's files, and workload.json, request.json, measurements.json, result.json, report.html."""

    @property
    def has_plan(self) -> bool:
        return (self.path / "experiment.json").exists()

    def begin(self, experiment: Experiment, workload: Workload, access: ExperimentAccess) -> None:
        """Writes the plan, and the traffic as `compare` reads it in a run's request."""
        self.keep_workload(workload)
        pattern = traffic_pattern(workload.traffic[experiment.traffic])
        self.keep("request.json", {"InputConfig": {"TrafficPattern": pattern}})
        access.write_json(self.path / "access.json")
        experiment.write_json(self.path / "experiment.json")

    def experiment(self) -> Experiment:
        """Raises `UsageError` or `InvalidDocument`."""
        if not self.has_plan:
            raise UsageError(f"--resume: {self} is not the folder of an experiment: it has no experiment.json.")
        return Experiment.from_json(self.path / "experiment.json")

    def access(self) -> ExperimentAccess:
        return ExperimentAccess.from_json(self.path / "access.json")

    def job(self, batch: CellBatch) -> RunFolder:
        return RunFolder(self.path / "jobs" / batch.name)

    def keep_batch(self, batch: CellBatch) -> None:
        """Records a batch before it is sent. Deletes earlier failures of its cells, which are measured again."""
        for cell in batch.cells:
            self._cell(cell).unlink(missing_ok=True)
        batch.write_json(self.job(batch).path / "batch.json")

    def batches(self) -> tuple[CellBatch, ...]:
        return tuple(CellBatch.from_json(file) for file in sorted(self.path.glob("jobs/*/batch.json")))

    def keep_origin(self, origin: ExperimentOrigin) -> None:
        origin.write_json(self.path / "origin.json")

    @property
    def has_measured(self) -> bool:
        return (self.path / "origin.json").exists()

    def origin(self) -> ExperimentOrigin:
        """Raises `UsageError`."""
        if not self.has_measured:
            raise UsageError(f"{self}: no cell is measured yet. Continue with `experiment --resume {self}`.")
        return ExperimentOrigin.from_json(self.path / "origin.json")

    def job_arns(self) -> tuple[str, ...]:
        """Returns the ARNs of the ended jobs, in the order of their names."""
        jobs = (self.job(batch) for batch in self.batches())
        return tuple(job.description()["JobArn"] for job in jobs if (job.path / "describe.json").exists())

    def keep_cells(self, measured: Iterable[Measurement], cells: Iterable[Cell]) -> None:
        """Writes a file for each measurement, and measurements.json with all measured `cells`."""
        for measurement in measured:
            cell = Cell(variant=measurement.variant or "", instance_type=measurement.instance_type)
            measurement.write_json(self._cell(cell))
        self.keep_measurements(self.measured(cells))

    def measured(self, cells: Iterable[Cell]) -> tuple[Measurement, ...]:
        """Returns the measurements of the cells whose test has ended, also of failed ones."""
        return tuple(self._measured(cell) for cell in cells if self.ended(cell))

    def ended(self, cell: Cell) -> bool:
        return self._cell(cell).exists()

    def left(self, cells: Iterable[Cell]) -> tuple[Cell, ...]:
        """Returns the cells without a measurement, and those with a failed or invalid test."""
        objective = self.workload().latency_objective
        return tuple(cell for cell in cells if not self.ended(cell) or _is_bad(self._measured(cell), objective))

    def keep_result(self, result: Document) -> None:
        result.write_json(self.path / "result.json")

    def _measured(self, cell: Cell) -> Measurement:
        return Measurement.from_json(self._cell(cell))

    def _cell(self, cell: Cell) -> Path:
        return self.path / "cells" / cell.variant / f"{cell.instance_type}.json"


def _is_bad(measured: Measurement, objective: LatencyObjective) -> bool:
    return bool(measured.failure_reason or why_invalid([measured], objective))
