"""The result of an experiment: a row for each cell, sized and priced, and how the cells compare. Pure.

    cost per million at capacity = price per hour / (closed-loop invocations · 60) · 10⁶    one instance, fully used
    Pareto front                 = the cells that no other cell beats in both latency and cost at capacity

If a measured cell has no price, the front is of latency and invocations per minute. Ratios are to a baseline cell. A
speed-up is to the baseline's variant on the cell's own instance type: the effect of the optimisation.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from inference_recommender.experiment.cells import Cell
from inference_recommender.experiment.folder import ExperimentFolder, ExperimentOrigin
from inference_recommender.experiment.plan import Experiment
from inference_recommender.measurement import Measurement
from inference_recommender.sizing.decision import decide, why_invalid
from inference_recommender.sizing.fleet import cost_per_million_usd
from inference_recommender.sizing.prices import job_price
from workloads import Candidate, InstanceGroup, LatencyObjective, Provenance, RandomWeights, Serving, Workload
from workloads.document import Document
from workloads.instances import InstanceShape, instance_shape

NO_ONE_ARCHIVE = "of each variant"
"""In place of a recommendation's archive hash; the experiment has the hash of each variant's archive."""
OPTIMISATIONS = {
    "torchscript": "PyTorch",
    "cuda": "PyTorch, CUDA graphs",
    "tensorrt": "TensorRT",
    "onnxruntime": "ONNX Runtime",
    "neuron": "Neuron",
    "neuronx": "Neuron",
}
FrontFigure = Literal["cost per million", "invocations per minute"]


class Ratios(Document):
    """A cell's figures over the baseline's; None if one of the two is unknown."""

    invocations_per_minute: float | None
    model_latency: float | None
    p95_latency: float | None
    cost_per_million: float | None


class ExperimentRow(Document):
    """A cell with the columns of the published table and its measurements."""

    variant: str
    optimisation: str = Field(description="The model's runtime, and its precision if that is not fp32.")
    dynamic_batching: str | None = Field(description="None: requests run one by one.")
    instance_groups: str
    instance_type: str
    vcpus: int | None
    memory_gib: float | None
    gpus: int | None
    gpu_memory_gib: float | None = Field(description="Of all GPUs together.")
    neuron_chips: int | None
    gpu_utilization_percent: float | None = Field(
        default=None, description="Mean of a GPU in the busiest minute; None without a GPU or a metric."
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
        """The closed-loop rate, as in published tables."""
        if self.candidate is None:
            return None
        return self.candidate.closed_loop_invocations_per_minute or self.candidate.max_invocations_per_minute

    @property
    def latency_ms(self) -> float | None:
        return self.candidate.model_latency_ms if self.candidate else None

    @property
    def p95_ms(self) -> float | None:
        return self.candidate.model_latency_percentiles_ms.p95 if self.candidate else None

    @property
    def compared_ms(self) -> float | None:
        """The latency that compares cells: the P95 of the whole test, or the job's own figure without one."""
        return self.latency_ms if self.p95_ms is None else self.p95_ms


class ExperimentResult(Document):
    experiment: str
    workload: str
    published: str | None = Field(default=None, description="The workload's [published.NAME] that was measured.")
    model: str = Field(default="unknown", description="The measured model in words.")
    traffic: str
    objective: LatencyObjective
    origin: ExperimentOrigin
    job_arns: tuple[str, ...]
    rows: tuple[ExperimentRow, ...]
    recommended: Cell | None = Field(description="The cheapest that meets the objective.")
    baseline: Cell | None
    front_against: FrontFigure
    why_no_verdict: str | None = Field(description="The reason if nothing is recommended for lack of evidence.")

    def best_of_each_type(self, figure: Callable[[ExperimentRow], float | None]) -> tuple[ExperimentRow, ...]:
        """Returns the row with the smallest figure on each instance type, in the order of the rows."""
        best: dict[str, tuple[float, ExperimentRow]] = {}
        for row in self.rows:
            value = figure(row) if row.rate else None
            if value is not None and (row.instance_type not in best or value < best[row.instance_type][0]):
                best[row.instance_type] = value, row
        return tuple(row for _, row in best.values())


def conclude(folder: ExperimentFolder) -> ExperimentResult:
    """Sizes and compares the cells measured so far."""
    experiment = folder.experiment()
    measured = folder.measured(experiment.cells)
    return result(experiment, folder.workload(), measured, folder.origin(), folder.job_arns())


def result(
    experiment: Experiment,
    workload: Workload,
    measured: Sequence[Measurement],
    origin: ExperimentOrigin,
    job_arns: Sequence[str],
) -> ExperimentResult:
    """Sizes and compares the cells measured so far; the others have a row without figures."""
    decided = decide(workload, NO_ONE_ARCHIVE, measured, _provenance(experiment, workload, origin, job_arns))
    by_cell = {_cell(one): (candidate, one) for candidate, one in zip(decided.candidates, measured, strict=True)}
    rows = [_row(workload, cell, by_cell.get(cell), origin.region) for cell in experiment.cells]
    why = _no_verdict(measured, workload.latency_objective)
    chosen = _cell(decided.recommended) if decided.recommended and not why else None
    front_against, front = pareto_front(rows)
    base = next((row for row in rows if row.cell == experiment.baseline), None)

    def compared(row: ExperimentRow) -> ExperimentRow:
        ratios = {"ratios": _ratios(row, base), "speed_up": _speed_up(row, base, rows)} if base else {}
        marks = {"cheapest": row.cell == chosen, "on_pareto_front": row.cell in front}
        return row.model_copy(update={**marks, **ratios})

    return ExperimentResult(
        experiment=experiment.name,
        workload=workload.name,
        published=experiment.published,
        model=_model(workload),
        traffic=experiment.traffic,
        objective=workload.latency_objective,
        origin=origin,
        job_arns=tuple(job_arns),
        rows=tuple(map(compared, rows)),
        recommended=chosen,
        baseline=experiment.baseline,
        front_against=front_against,
        why_no_verdict=why,
    )


def pareto_front(rows: Sequence[ExperimentRow]) -> tuple[FrontFigure, frozenset[Cell]]:
    """Returns the cells that no other beats in both latency and a second figure, and the name of that figure."""
    measured = [(row, row.compared_ms, row.rate) for row in rows if row.compared_ms is not None and row.rate]
    priced = all(row.cost_per_million_at_capacity_usd is not None for row, _, _ in measured)
    points = [
        (row.cell, (latency or 0.0, (row.cost_per_million_at_capacity_usd or 0.0) if priced else -(rate or 0.0)))
        for row, latency, rate in measured
    ]
    front = {cell for cell, point in points if not any(_beats(other, point) for _, other in points)}
    return "cost per million" if priced else "invocations per minute", frozenset(front)


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Returns whether `one` is as good in each figure (smaller is better) and better in one."""
    return one != other and one[0] <= other[0] and one[1] <= other[1]


def _row(workload: Workload, cell: Cell, tested: tuple[Candidate, Measurement] | None, region: str) -> ExperimentRow:
    shape = instance_shape(cell.instance_type)
    candidate, measured = tested or (None, None)
    variant = workload.variant(cell.variant)
    target = workload.targets[variant.target]
    row = ExperimentRow(
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
    )
    if measured is None or not row.rate:
        return row
    per_hour = job_price(measured.instance_type, measured.price_per_hour_usd, region, None).usd_per_hour
    cost = None if per_hour is None else cost_per_million_usd(per_hour, row.rate)
    return row.model_copy(update={"cost_per_million_at_capacity_usd": cost})


def _model(workload: Workload) -> str:
    model, checkpoint = workload.model, workload.model.checkpoint
    if isinstance(checkpoint, RandomWeights):
        shrunk = "" if checkpoint.shrink == 1 else f", layers, heads and width divided by {checkpoint.shrink}"
        checkpoint = f"{checkpoint.architecture} with random weights{shrunk}"
    padded = getattr(model, "padding", "longest") == "max_length"
    return f"{checkpoint}; {'every request of' if padded else 'requests of at most'} {model.max_input_tokens} tokens"


def _batching(serving: Serving) -> str | None:
    """Returns the preferred sizes and the longest wait in Triton's unit."""
    if not serving.dynamic_batching:
        return None
    sizes = ", ".join(map(str, serving.preferred_batch_sizes)) or f"up to {serving.max_batch_size}"
    return f"{sizes}; {serving.max_queue_delay_ms * 1000:g} µs"


def _group(group: InstanceGroup, shape: InstanceShape | None) -> str:
    """Returns "2 per GPU", "1 on GPU 0", or "2"."""
    if group.gpus:
        return f"{group.count} on GPU {' and '.join(map(str, group.gpus))}"
    on_gpu = group.kind == "KIND_GPU" or (group.kind is None and shape is not None and shape.gpus)
    return f"{group.count} per GPU" if on_gpu else str(group.count)


def _speed_up(row: ExperimentRow, base: ExperimentRow, rows: Sequence[ExperimentRow]) -> float | None:
    on_type = (other for other in rows if (other.instance_type, other.variant) == (row.instance_type, base.variant))
    return next((_ratio(row.rate, other.rate) for other in on_type), None)


def _ratios(row: ExperimentRow, base: ExperimentRow) -> Ratios:
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
    """Returns why there is no verdict: one cell without evidence is enough, because it might be the cheapest."""
    reasons = ((one, why_invalid([one], objective)) for one in measured)
    return next((f"{one.variant} on {reason}" for one, reason in reasons if reason), None)


def _provenance(
    experiment: Experiment, workload: Workload, origin: ExperimentOrigin, job_arns: Sequence[str]
) -> Provenance:
    return Provenance(
        **dict(origin),
        job_name=experiment.name,
        job_arn=", ".join(job_arns),
        traffic=experiment.traffic,
        percentile=workload.latency_objective.percentile,
        run=f"runs/{experiment.name}",
    )
