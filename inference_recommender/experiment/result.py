"""An experiment's result: a row for each cell, sized and priced, and how the cells compare. Pure.

    cost per million at capacity = price per hour / (max invocations · 60) · 10⁶      one instance, fully used
    Pareto front                 = the cells that no other beats in both latency and cost at capacity

Where the price of any measured cell is unknown, the front is latency against invocations per minute and instance: no
price is invented, and cells with a price are not preferred to those without. Ratios are to a baseline cell, above 1
where the figure is larger than the baseline's; a speed-up is to the baseline's variant on the cell's own instance type,
and tells what the optimisation alone is worth. With a baseline there are two short tables besides, as published: the
cell of the lowest P95 of each instance type, and the one whose requests cost least.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from inference_recommender.experiment.cells import Cell
from inference_recommender.experiment.folder import Origin
from inference_recommender.experiment.plan import Experiment
from inference_recommender.measurement import Measurement
from inference_recommender.sizing.decision import decide, why_invalid
from inference_recommender.sizing.fleet import cost_per_million_usd
from inference_recommender.sizing.prices import price
from workloads import Candidate, InstanceGroup, LatencyObjective, Provenance, RandomWeights, Serving, Workload
from workloads.document import Document
from workloads.instances import InstanceShape, instance_shape

NO_ONE_ARCHIVE = "of each variant"
"""Stands for a recommendation's one archive; the experiment keeps the sha256 of each variant's."""

OPTIMISATIONS = {
    "torchscript": "PyTorch",
    "cuda": "PyTorch, CUDA graphs",
    "tensorrt": "TensorRT",
    "onnxruntime": "ONNX Runtime",
    "neuron": "Neuron",
    "neuronx": "Neuron",
}

Against = Literal["cost per million", "invocations per minute"]


class Ratios(Document):
    """A cell's figures over the baseline's; None where one of the two is unknown."""

    invocations_per_minute: float | None
    model_latency: float | None
    p95_latency: float | None
    cost_per_million: float | None


class Row(Document):
    """A cell with the columns of the published table, and what was measured of it besides."""

    variant: str
    optimisation: str = Field(description="What runs the model, and its precision where that is not fp32.")
    dynamic_batching: str | None = Field(description="None: requests are run one by one.")
    instance_groups: str
    instance_type: str
    vcpus: int | None
    memory_gib: float | None
    gpus: int | None
    gpu_memory_gib: float | None = Field(description="Of all GPUs together.")
    neuron_chips: int | None
    gpu_utilization_percent: float | None = Field(
        default=None, description="Mean of a GPU in the busiest minute; None where there is no GPU, or no metric."
    )
    candidate: Candidate | None = Field(description="None: not measured.")
    cost_per_million_at_capacity_usd: float | None = None
    cheapest: bool = False
    on_pareto_front: bool = False
    ratios: Ratios | None = None
    speed_up: float | None = Field(
        default=None, description="Invocations per minute over those of the baseline's variant on the same type."
    )

    @property
    def cell(self) -> Cell:
        return Cell(variant=self.variant, instance_type=self.instance_type)

    @property
    def rate(self) -> float | None:
        """The rate that the cell's users had, as published tables have it."""
        return users_rate(self.candidate) if self.candidate else None

    @property
    def latency_ms(self) -> float | None:
        return self.candidate.model_latency_ms if self.candidate else None

    @property
    def p95_ms(self) -> float | None:
        return self.candidate.model_latency_percentiles_ms.p95 if self.candidate else None

    @property
    def compared_ms(self) -> float | None:
        """The latency by which cells are compared: the P95 of the whole test, or where nothing has it the job's own."""
        return self.latency_ms if self.p95_ms is None else self.p95_ms


class Result(Document):
    experiment: str
    workload: str
    published: str | None = Field(default=None, description="The workload's [published.NAME] that was measured.")
    model: str = Field(default="unknown", description="What was measured, in words.")
    traffic: str
    objective: LatencyObjective
    origin: Origin
    job_arns: tuple[str, ...]
    rows: tuple[Row, ...]
    recommended: Cell | None = Field(description="The cheapest that meets the objective.")
    baseline: Cell | None
    front_against: Against
    lowest_latency: tuple[Cell, ...] = Field(
        default=(), description="With a baseline, the cell of the lowest P95 on each instance type."
    )
    lowest_cost: tuple[Cell, ...] = Field(
        default=(),
        description="With a baseline, the cell of the highest rate on each instance type, whose requests cost least.",
    )
    why_no_verdict: str | None = Field(description="Why nothing may be concluded; then nothing is recommended.")

    def rows_of(self, cells: Sequence[Cell]) -> tuple[Row, ...]:
        """Returns the rows of `cells`, in their order."""
        by_cell = {row.cell: row for row in self.rows}
        return tuple(by_cell[cell] for cell in cells)


def result(
    experiment: Experiment,
    workload: Workload,
    measured: Sequence[Measurement],
    origin: Origin,
    job_arns: Sequence[str],
) -> Result:
    """Sizes and compares the cells measured so far; the others have a row without figures."""
    decided = decide(workload, NO_ONE_ARCHIVE, measured, _provenance(experiment, workload, origin, job_arns))
    by_cell = {_cell(one): (candidate, one) for candidate, one in zip(decided.candidates, measured, strict=True)}
    rows = [_row(workload, cell, by_cell.get(cell), origin.region) for cell in experiment.cells]
    why = _no_verdict(measured, workload.latency_objective)
    chosen = _cell(decided.recommended) if decided.recommended and not why else None
    against, front = pareto_front(rows)
    base = next((row for row in rows if row.cell == experiment.baseline), None)
    return Result(
        experiment=experiment.name,
        workload=workload.name,
        published=experiment.published,
        model=_model(workload),
        traffic=experiment.traffic,
        objective=workload.latency_objective,
        origin=origin,
        job_arns=tuple(job_arns),
        rows=tuple(
            row.model_copy(
                update={
                    "cheapest": row.cell == chosen,
                    "on_pareto_front": row.cell in front,
                    "ratios": _ratios(row, base) if base else None,
                    "speed_up": _speed_up(row, base, rows) if base else None,
                }
            )
            for row in rows
        ),
        recommended=chosen,
        baseline=experiment.baseline,
        front_against=against,
        lowest_latency=_best(rows, lambda row: row.compared_ms) if base else (),
        lowest_cost=_best(rows, lambda row: row.rate and -row.rate) if base else (),
        why_no_verdict=why,
    )


def pareto_front(rows: Sequence[Row]) -> tuple[Against, frozenset[Cell]]:
    """Returns the cells that no other beats in both latency and a second figure, and which figure that is."""
    known = [(row, row.compared_ms, row.rate) for row in rows]
    measured = [(row, latency, rate) for row, latency, rate in known if latency is not None and rate]
    costs = [row.cost_per_million_at_capacity_usd for row, _, _ in measured]
    against: Against = "invocations per minute" if None in costs else "cost per million"
    points = [
        (row.cell, latency, -rate if cost is None or None in costs else cost)
        for (row, latency, rate), cost in zip(measured, costs, strict=True)
    ]
    front = {cell for cell, *point in points if not any(_beats(other, point) for _, *other in points)}
    return against, frozenset(front)


def _best(rows: Sequence[Row], figure: Callable[[Row], float | None]) -> tuple[Cell, ...]:
    """Returns the cell whose figure is smallest on each instance type, in the order of the rows."""
    best: dict[str, tuple[float, Cell]] = {}
    for row in rows:
        found = figure(row) if row.rate else None
        if found is not None and (row.instance_type not in best or found < best[row.instance_type][0]):
            best[row.instance_type] = found, row.cell
    return tuple(cell for _, cell in best.values())


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    """Tells whether `one` is as good in each figure (smaller is better) and better in one."""
    return all(a <= b for a, b in zip(one, other, strict=True)) and list(one) != list(other)


def _row(workload: Workload, cell: Cell, result: tuple[Candidate, Measurement] | None, region: str) -> Row:
    shape = instance_shape(cell.instance_type)
    candidate, measured = result or (None, None)
    variant = workload.variant(cell.variant)
    target = workload.targets[variant.target]
    return Row(
        variant=cell.variant,
        optimisation=OPTIMISATIONS[target.runtime] + ("" if target.precision == "fp32" else f" {target.precision}"),
        dynamic_batching=_batching(variant.serving),
        instance_groups=", ".join(_group(group, shape) for group in variant.serving.groups),
        instance_type=cell.instance_type,
        vcpus=shape.vcpus if shape else None,
        memory_gib=shape.memory_gib if shape else None,
        gpus=shape.gpus if shape else None,
        gpu_memory_gib=shape.gpu_memory_gib if shape else None,
        neuron_chips=shape.neuron_chips if shape else None,
        gpu_utilization_percent=measured.gpu_utilization_percent if measured else None,
        candidate=candidate,
        cost_per_million_at_capacity_usd=_cost_at_capacity(candidate, measured, region)
        if candidate and measured
        else None,
    )


def _model(workload: Workload) -> str:
    model, checkpoint = workload.model, workload.model.checkpoint
    if isinstance(checkpoint, RandomWeights):
        shrunk = "" if checkpoint.shrink == 1 else f", layers, heads and width divided by {checkpoint.shrink}"
        what = f"{checkpoint.architecture} with random weights{shrunk}"
    else:
        what = checkpoint
    padded = getattr(model, "padding", "longest") == "max_length"
    return f"{what}; {'every request of' if padded else 'requests of at most'} {model.max_input_tokens} tokens"


def _batching(serving: Serving) -> str | None:
    """Returns the preferred sizes and the longest wait, as Triton counts it."""
    if not serving.dynamic_batching:
        return None
    sizes = ", ".join(map(str, serving.preferred_batch_sizes)) or f"up to {serving.max_batch_size}"
    return f"{sizes}; {serving.max_queue_delay_ms * 1000:g} µs"


def _group(group: InstanceGroup, shape: InstanceShape | None) -> str:
    """Returns 2 per GPU, 1 on GPU 0, or 2."""
    if group.gpus:
        return f"{group.count} on GPU {' and '.join(map(str, group.gpus))}"
    on_gpu = group.kind == "KIND_GPU" or (group.kind is None and shape is not None and shape.gpus)
    return f"{group.count} per GPU" if on_gpu else str(group.count)


def _speed_up(row: Row, base: Row, rows: Sequence[Row]) -> float | None:
    same_type = (other for other in rows if other.instance_type == row.instance_type and other.variant == base.variant)
    return next((_ratio(row.rate, other.rate) for other in same_type), None)


def _cost_at_capacity(candidate: Candidate, measured: Measurement, region: str) -> float | None:
    per_hour = price(measured.instance_type, region, measured.price_per_hour_usd).usd_per_hour
    rate = users_rate(candidate)
    return cost_per_million_usd(per_hour, rate) if per_hour is not None and rate else None


def users_rate(candidate: Candidate) -> float | None:
    """Returns the rate of the test's closed-loop users; before there was another, it was the only one."""
    return candidate.closed_loop_invocations_per_minute or candidate.max_invocations_per_minute


def _ratios(row: Row, base: Row) -> Ratios:
    return Ratios(
        invocations_per_minute=_ratio(row.rate, base.rate),
        model_latency=_ratio(row.latency_ms, base.latency_ms),
        p95_latency=_ratio(row.p95_ms, base.p95_ms),
        cost_per_million=_ratio(row.cost_per_million_at_capacity_usd, base.cost_per_million_at_capacity_usd),
    )


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _cell(measured: Candidate | Measurement) -> Cell:
    return Cell(variant=measured.variant or "", instance_type=measured.instance_type)


def _no_verdict(measured: Sequence[Measurement], objective: LatencyObjective) -> str | None:
    """Returns why there is no verdict: a single cell without one is enough, because it might be the cheapest."""
    for measurement in measured:
        if reason := why_invalid([measurement], objective):
            return f"{measurement.variant} on {reason}"
    return None


def _provenance(experiment: Experiment, workload: Workload, origin: Origin, job_arns: Sequence[str]) -> Provenance:
    return Provenance(
        measured_on=origin.measured_on,
        machine=origin.machine,
        job_name=experiment.name,
        job_arn=", ".join(job_arns),
        traffic=experiment.traffic,
        percentile=workload.latency_objective.percentile,
        measured_at=origin.measured_at,
        region=origin.region,
        run=f"runs/{experiment.name}",
    )
