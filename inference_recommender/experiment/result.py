"""An experiment's folder and its result: every cell sized and priced, and how the cells compare.

    cost per million at capacity = price per hour / (closed-loop invocations · 60) · 10⁶    one instance, fully used
    Pareto front                 = the cells that no other cell beats in both latency and cost at capacity

If a measured cell has no price, the front is of latency and invocations per minute. Ratios are to a baseline cell. A
speed-up is to the baseline's variant on the cell's own instance type: the effect of the optimisation.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inference_recommender.experiment.plan import Cell, CellBatch, Experiment, ExperimentAccess
from inference_recommender.measure.job_requests import traffic_pattern
from inference_recommender.measurement import Measurement
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.decision import cheapest, decide, why_invalid
from inference_recommender.sizing.fleet import cost_per_million_usd
from inference_recommender.sizing.prices import job_price
from workloads import Candidate, Provenance, Workload

PLAN, ACCESS, ORIGIN = "experiment.json", "access.json", "origin.json"


class ExperimentFolder(RunFolder):
    """Reads as a run's, of all cells that were measured: a measured cell need not be measured again. Files:
    experiment.json, access.json, origin.json, jobs/NAME/ with batch.json and a run's files, workload.json,
    request.json, measurements.json, result.json, report.html.
    """

    def begin(self, experiment: Experiment, workload: Workload, access: ExperimentAccess) -> None:
        """Writes the plan, and the traffic as `compare` reads it in a run's request."""
        self.keep_workload(workload)
        pattern = traffic_pattern(workload.traffic[experiment.traffic])
        self.keep("request.json", {"InputConfig": {"TrafficPattern": pattern}})
        access.write_json(self.path / ACCESS)
        experiment.write_json(self.path / PLAN)

    def experiment(self) -> Experiment:
        """Raises `UsageError` or `InvalidDocument`."""
        missing = f"--resume: {self} is not the folder of an experiment: it has no {PLAN}."
        return Experiment.from_json(self._existing(PLAN, missing))

    def access(self) -> ExperimentAccess:
        return ExperimentAccess.from_json(self.path / ACCESS)

    def job(self, batch: CellBatch) -> RunFolder:
        return RunFolder(self.path / "jobs" / batch.name)

    def keep_batch(self, batch: CellBatch) -> None:
        """Records a batch before it is sent. Deletes earlier failures of its cells, which are measured again."""
        self.keep_measurements(tuple(one for cell, one in self.measured().items() if cell not in batch.cells))
        batch.write_json(self.job(batch).path / "batch.json")

    def batches(self) -> tuple[CellBatch, ...]:
        return tuple(CellBatch.from_json(file) for file in sorted(self.path.glob("jobs/*/batch.json")))

    def keep_origin(self, origin: Provenance) -> None:
        origin.write_json(self.path / ORIGIN)

    def origin(self) -> Provenance:
        """Returns the origin of the last measurement. Raises `UsageError`."""
        missing = f"{self}: no cell is measured yet. Continue with `experiment --resume {self}`."
        return Provenance.from_json(self._existing(ORIGIN, missing))

    def measured(self) -> dict[Cell, Measurement]:
        """Returns the measurements of the cells whose test has ended, also of failed ones."""
        known = self.measurements() if (self.path / "measurements.json").exists() else ()
        return {Cell.of(one): one for one in known}

    def keep_cells(self, measured: Iterable[Measurement]) -> None:
        """Adds measurements."""
        self.keep_measurements(tuple({**self.measured(), **{Cell.of(one): one for one in measured}}.values()))

    def left(self) -> tuple[Cell, ...]:
        """Returns the cells without a measurement, and those with a failed or invalid test."""
        known, objective = self.measured(), self.workload().latency_objective
        return tuple(
            cell
            for cell in self.experiment().cells
            if (one := known.get(cell)) is None or one.failure_reason or why_invalid([one], objective)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CellResult:
    """A cell with its figures; without any if it was not measured."""

    cell: Cell
    candidate: Candidate | None = None
    gpu_utilization_percent: float | None = None
    """Mean of a GPU in the busiest minute; None without a GPU or a metric."""
    price_per_hour_usd: float | None = None
    rows: int = 1
    """Rows of each request, if the cells of the experiment differ in them."""

    @property
    def rows_per_minute(self) -> float | None:
        return self.rate and self.rate * self.rows

    @property
    def rate(self) -> float | None:
        """The closed-loop rate, as in published tables."""
        if self.candidate is None:
            return None
        return self.candidate.closed_loop_invocations_per_minute or self.candidate.max_invocations_per_minute

    @property
    def p95_ms(self) -> float | None:
        return self.candidate.model_latency_percentiles_ms.p95 if self.candidate else None

    @property
    def compared_ms(self) -> float | None:
        """The latency that compares cells: the P95 of the whole test, or the job's own figure without one."""
        return self.candidate.model_latency_ms if self.candidate and self.p95_ms is None else self.p95_ms

    @property
    def cost_usd(self) -> float | None:
        """The cost per million at capacity, of rows if the cells differ in them."""
        known = self.price_per_hour_usd is not None and self.rows_per_minute
        return cost_per_million_usd(self.price_per_hour_usd or 0.0, self.rows_per_minute or 0.0) if known else None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentResult:
    experiment: Experiment
    workload: Workload
    origin: Provenance
    rows: tuple[CellResult, ...]
    recommended: CellResult | None
    """The cheapest that meets the objective."""
    why_no_verdict: str | None
    """The reason if nothing is recommended for lack of evidence."""

    @property
    def baseline(self) -> CellResult | None:
        return next((row for row in self.rows if row.cell == self.experiment.baseline), None)

    @property
    def is_priced(self) -> bool:
        """Whether every measured cell has a cost, so that the front is of costs."""
        return all(row.cost_usd is not None for row in self.rows if row.compared_ms is not None and row.rate)

    @property
    def front(self) -> frozenset[Cell]:
        """The cells that no other beats in both latency and cost, or latency and rate."""
        points = {
            row.cell: (row.compared_ms, (row.cost_usd or 0.0) if self.is_priced else -(row.rows_per_minute or 0.0))
            for row in self.rows
            if row.compared_ms is not None and row.rate
        }

        def is_beaten(point: tuple[float, float]) -> bool:
            return any(one != point and one[0] <= point[0] and one[1] <= point[1] for one in points.values())

        return frozenset(cell for cell, point in points.items() if not is_beaten(point))

    def speed_up(self, row: CellResult) -> float | None:
        """Returns the rate over that of the baseline's variant on the same type."""
        variant = self.experiment.baseline.variant if self.experiment.baseline else None
        same = Cell(variant=variant or "", instance_type=row.cell.instance_type)
        return next(
            (ratio(row.rows_per_minute, other.rows_per_minute) for other in self.rows if other.cell == same), None
        )


def conclude(folder: ExperimentFolder) -> ExperimentResult:
    """Sizes and compares the cells measured so far. Raises `UsageError` if there are none."""
    experiment, names = folder.experiment(), ", ".join(batch.name for batch in folder.batches())
    origin = folder.origin().model_copy(update={"job_name": experiment.name, "job_arn": names})
    measured = folder.measured()
    known = [measured[cell] for cell in experiment.cells if cell in measured]
    return result(experiment, folder.workload(), known, origin)


def result(
    experiment: Experiment, workload: Workload, measured: Sequence[Measurement], origin: Provenance
) -> ExperimentResult:
    """Sizes and compares the cells measured so far; the others have a row without figures."""
    candidates = [
        decide(
            experiment.workload_of(one.variant or "", workload),
            "of each variant",
            [one],
            origin,
            price_list=experiment.prices,
        ).candidates[0]
        for one in measured
    ]
    recommended = cheapest(candidates)
    tested = {
        Cell.of(one): CellResult(
            cell=Cell.of(one),
            candidate=candidate,
            gpu_utilization_percent=one.gpu_utilization_percent,
            price_per_hour_usd=job_price(
                one.instance_type, one.price_per_hour_usd, origin.region, None, experiment.prices
            ).usd_per_hour,
            rows=experiment.rows.get(one.variant or "", 1),
        )
        for candidate, one in zip(candidates, measured, strict=True)
    }
    # One cell without evidence is enough for no verdict: it might be the cheapest.
    reasons = ((one, why_invalid([one], workload.latency_objective)) for one in measured)
    why = next((f"{one.variant} on {reason}" for one, reason in reasons if reason), None)
    chosen = (row for row in tested.values() if row.candidate is recommended)
    return ExperimentResult(
        experiment=experiment,
        workload=workload,
        origin=origin,
        rows=tuple(tested.get(cell, CellResult(cell=cell)) for cell in experiment.cells),
        recommended=None if why else next(chosen, None),
        why_no_verdict=why,
    )


def ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None
