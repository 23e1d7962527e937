"""The report of an experiment: all cells in one table, the recommended one, and plots. Pure."""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from inference_recommender.experiment.result import CellResult, ExperimentResult, ratio
from inference_recommender.measurement import local_caution
from inference_recommender.report.candidates import fleet_text, no_candidate
from inference_recommender.report.configuration import configuration_table
from inference_recommender.report.document import Plot, Report, Table, objective_text, table
from inference_recommender.report.inputs import FolderInputs
from inference_recommender.report.plots import BLUE, GREEN, GREY, ORANGE, RED, asked, drawn, new_figure
from inference_recommender.report.sections import COLD_START, OTHER_PAYLOADS, fleet_highlights, generator_table, present
from workloads import InstanceGroup, RandomWeights, Serving, Workload
from workloads.instances import InstanceShape, instance_shape, shapes_source

SHAPE = (
    ("vcpus", "vCPU", "d"),
    ("memory_gib", "GiB", "g"),
    ("gpus", "GPU", "d"),
    ("gpu_memory_gib", "GPU GiB", "g"),
    ("neuron_chips", "chips", "d"),
)
CELLS = (
    ("mark", "", ""),
    ("variant", "variant", ""),
    ("runtime", "runtime", ""),
    ("dynamic_batching", "batching", ""),
    ("instance_groups", "instance group", ""),
    ("instance_type", "instance type", ""),
    ("objective", "objective", ""),
    *SHAPE,
    ("instance_count", "instances", ",d"),
    ("invocations_per_minute", "closed-loop /min", ",.0f"),
    ("max_invocations_per_minute", "capacity /min", ",.0f"),
    ("p95_ms", "P95 ms", ",.4g"),
    ("gpu_utilization_percent", "GPU %", ".0f"),
    ("cost_per_hour_usd", "$/h", ",.3f"),
    ("cost_per_million_invocations_usd", "$/1M", ",.3f"),
    ("cost_at_capacity_usd", "$/1M at capacity", ",.3f"),
)
ROWS = ("rows", "rows/request", ",d")
RATIOS = (
    ("speed_up", "speed-up", ".2f"),
    ("invocations_ratio", "/min ×", ".2f"),
    ("p95_ratio", "P95 ×", ".2f"),
    ("cost_ratio", "$/1M ×", ".2f"),
)
ROW_IN, LEAST_IN, WIDTH_IN, WIDE_IN = 0.34, 2.6, 5.4, (10.6, 4.2)
FAR = 3.0
"""A limit above all latencies by this factor is not drawn."""
MARKERS = "osD^vP*X"
"""One for each instance type, in turn."""


def experiment_report(name: str, result: ExperimentResult, inputs: FolderInputs) -> Report:
    experiment, workload, origin = result.experiment, result.workload, result.origin
    candidates = [row.candidate for row in result.rows if row.candidate]
    chosen = result.recommended.candidate if result.recommended else None
    base = experiment.baseline
    if result.why_no_verdict:
        decision = f"No verdict: {result.why_no_verdict}"
    else:
        decision = f"Recommended: {fleet_text(chosen)}." if chosen else no_candidate(candidates)
    return Report(
        kind="experiment",
        name=name,
        workload=workload.name,
        description=workload.description,
        objective=objective_text(result.workload.latency_objective),
        verdict="unknown" if result.why_no_verdict else "met" if chosen else "missed",
        decision=decision,
        highlights=tuple(fleet_highlights(chosen, result.workload.latency_objective)) if chosen else (),
        cautions=local_caution(origin.measured_on, origin.machine),
        tables=present(
            [
                _cells(result),
                generator_table(inputs),
                configuration_table(workload, candidates, base.variant if base else None),
            ]
        ),
        notes=tuple(_notes(result)),
        not_tested=(
            *(("The fleet of a cell under open arrivals. The command `prove` tests the deployed one.",) * bool(chosen)),
            OTHER_PAYLOADS,
            COLD_START,
        ),
        environment={
            "fingerprint": inputs.fingerprint(origin.machine, origin.measured_on, model_text(workload), origin.traffic),
            "published as": experiment.published or "not published: the workload's own model and load",
            "model": model_text(workload),
            "measured on": f"{origin.measured_on}: {origin.machine}",
            "traffic": origin.traffic,
            "measured at": origin.measured_at,
            "region": origin.region,
            "jobs": origin.job_arn or "none",
            "instance types": shapes_source(),
            **inputs.facts(),
        },
    )


def _cells(result: ExperimentResult) -> Table:
    own_rows = bool(result.experiment.rows)
    columns = (*CELLS, *((ROWS,) if own_rows else ()), *(RATIOS if result.experiment.baseline else ()))
    front, base, rows = result.front, result.baseline or result.rows[0], []
    for row in result.rows:
        variant, shape = result.workload.variant(row.cell.variant), instance_shape(row.cell.instance_type)
        target = result.workload.targets[variant.target]
        values = {
            **(dict(row.candidate) if row.candidate else {}),
            "mark": "*" * (row is result.recommended) + "P" * (row.cell in front),
            "variant": row.cell.variant,
            "runtime": f"{target.runtime} {target.precision}",
            "dynamic_batching": _batching(variant.serving),
            "instance_groups": ", ".join(_group(group, shape) for group in variant.serving.groups),
            "instance_type": row.cell.instance_type,
            "objective": ("met" if row.candidate.meets_objective else "missed") if row.candidate else None,
            **{key: getattr(shape, key, None) for key, _, _ in SHAPE},
            "invocations_per_minute": row.rate,
            "p95_ms": row.p95_ms,
            "gpu_utilization_percent": row.gpu_utilization_percent,
            "cost_at_capacity_usd": row.cost_usd,
            "speed_up": result.speed_up(row),
            "p95_ratio": ratio(row.p95_ms, base.p95_ms),
            "invocations_ratio": ratio(row.rows_per_minute, base.rows_per_minute),
            "rows": row.rows,
            "cost_ratio": ratio(row.cost_usd, base.cost_usd),
        }
        rows.append(values)
    return table("cells", "Cells", columns, rows)


def _notes(result: ExperimentResult) -> Iterator[str]:
    for row in result.rows:
        if row.candidate is None or not row.candidate.meets_objective:
            yield f"{row.cell}: {row.candidate.reason if row.candidate else 'Not measured.'}"
    unpriced = [row.candidate for row in result.rows if row.candidate and row.rate and row.cost_usd is None]
    yield from dict.fromkeys(f"{each.instance_type}: {each.cost_reason}" for each in unpriced)
    yield (
        "* recommended: the cheapest cell that meets the objective, or the fewest instances without prices. P: on the "
        f"Pareto front of latency and {'cost per million' if result.is_priced else 'invocations per minute'}."
    )
    yield "Rates are per instance. Instances and costs are of the fleet for the peak."
    if result.experiment.prices == "ec2":
        yield "Prices are those of EC2 instances, without SageMaker's surcharge."
    if (rows := result.workload.latency_objective.rows_per_invocation) > 1:
        yield f"An invocation has {rows} rows; $/1M is of invocations."
    if result.experiment.rows:
        yield "Costs at capacity and ratios are of rows; rates, and $/1M of the fleet, are of requests."
    if base := result.experiment.baseline:
        yield (
            f"× is the ratio to {base}, of costs at capacity. A speed-up is the ratio to {base.variant} on the same "
            "instance type."
        )


def model_text(workload: Workload) -> str:
    """Returns the measured model in words."""
    model, checkpoint = workload.model, workload.model.checkpoint
    if isinstance(checkpoint, RandomWeights):
        shrunk = "" if checkpoint.shrink == 1 else f", layers, heads and width divided by {checkpoint.shrink}"
        checkpoint = f"{checkpoint.architecture} with random weights{shrunk}"
    padded = getattr(model, "padding", "longest") == "max_length"
    return f"{checkpoint}; {'every request of' if padded else 'requests of at most'} {model.max_input_tokens} tokens"


def _batching(serving: Serving) -> str:
    """Returns the preferred sizes and the longest wait in Triton's unit."""
    if not serving.dynamic_batching:
        return "no"
    sizes = ", ".join(map(str, serving.preferred_batch_sizes)) or f"up to {serving.max_batch_size}"
    return f"{sizes}; {serving.max_queue_delay_ms * 1000:g} µs"


def _group(group: InstanceGroup, shape: InstanceShape | None) -> str:
    """Returns "2 per GPU", "1 on GPU 0", or "2"."""
    if group.gpus:
        return f"{group.count} on GPU {' and '.join(map(str, group.gpus))}"
    on_gpu = group.kind == "KIND_GPU" or (group.kind is None and shape is not None and shape.gpus)
    return f"{group.count} per GPU" if on_gpu else str(group.count)


def experiment_plots(result: ExperimentResult) -> dict[str, Plot]:
    """Returns the plots by title; none without figures."""
    if not any(row.rate and row.compared_ms for row in result.rows):
        return {}
    shown = {"Latency against cost" if result.is_priced else "Latency against throughput": _tradeoff(result)}
    if any(row.p95_ms is not None for row in result.rows):
        shown["Latency"] = _latencies(result)
    rows = [row for row in result.rows if row.rate]
    figure, axes = _rows(rows, "invocations per minute, per instance")
    axes.barh(range(len(rows)), [row.rate or 0.0 for row in rows], color=_colours(result, rows), height=0.62)
    return {**shown, "Throughput of one instance": drawn(figure)}


def _tradeoff(result: ExperimentResult) -> Plot:
    """Draws each cell's latency over its cost, or over its rate without prices, and the front with its names."""
    figure, axes = new_figure(WIDE_IN)
    costs, front = result.is_priced, result.front
    known = [row for row in result.rows if row.rate and row.compared_ms]
    points = {row.cell: ((row.cost_usd if costs else row.rate) or 0.0, row.compared_ms or 0.0) for row in known}
    line = sorted(points[cell] for cell in front)
    axes.plot(*zip(*line, strict=True), color=GREY, linewidth=1.2, zorder=1, label="Pareto front")
    for number, name in enumerate(dict.fromkeys(row.cell.instance_type for row in known)):
        of_type = [row for row in known if row.cell.instance_type == name]
        marker = MARKERS[number % len(MARKERS)]
        x, y = zip(*(points[row.cell] for row in of_type), strict=True)
        axes.scatter(x, y, color=_colours(result, of_type), marker=marker, s=52, zorder=2)
        # The legend shows a type's marker in one colour, whatever the colours of its cells are.
        axes.add_line(Line2D([], [], color=BLUE, marker=marker, linestyle="", label=name))
    for cell in front:
        axes.annotate(cell.variant, points[cell], xytext=(8, 4), textcoords="offset points", color=ORANGE)
    limit_ms = result.workload.latency_objective.model_latency_ms
    if limit_ms <= FAR * max(y for _, y in points.values()):
        axes.axhline(limit_ms, color=RED, linewidth=1.2, linestyle="--", label=asked(result.workload.latency_objective))
    axes.set(xlabel="USD per million invocations at capacity" if costs else "invocations per minute, per instance")
    p95 = all(row.p95_ms is not None for row in known)
    axes.set(ylabel="P95 model latency, ms" if p95 else "model latency, ms", ylim=(0, None))
    axes.margins(x=0.12, y=0.15)
    axes.xaxis.set_major_formatter("{x:,.3g}" if costs else "{x:,.0f}")
    return drawn(figure, legend_columns=6)


def _latencies(result: ExperimentResult) -> Plot:
    """Draws P50 to P99 of each cell's whole test with P95 marked, and the objective."""
    rows = [row for row in result.rows if row.p95_ms is not None]
    figure, axes = _rows(rows, "model latency, ms: P50 to P99, P95 marked")
    for number, (row, colour) in enumerate(zip(rows, _colours(result, rows), strict=True)):
        assert row.candidate is not None, "it has a P95"
        known = row.candidate.model_latency_percentiles_ms
        ends = [value for value in (known.p50, known.p95, known.p99) if value is not None]
        axes.plot([min(ends), max(ends)], [number, number], color=colour, linewidth=3, alpha=0.45)
        axes.plot([row.p95_ms or 0], [number], color=colour, marker="o")
    limit_ms = result.workload.latency_objective.model_latency_ms
    if limit_ms <= FAR * max(row.p95_ms or 0 for row in rows):
        axes.axvline(limit_ms, color=RED, linewidth=1.2, linestyle="--", label=asked(result.workload.latency_objective))
    return drawn(figure, legend_columns=1)


def _rows(rows: Sequence[CellResult], label: str) -> tuple[Figure, Axes]:
    """Returns a figure with a line for each row, the first on top."""
    figure, axes = new_figure((WIDTH_IN, max(LEAST_IN, 1.1 + ROW_IN * len(rows))))
    axes.set_yticks(range(len(rows)), [f"{row.cell.variant}\n{row.cell.instance_type}" for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", labelsize=9)
    axes.set(xlabel=label, xlim=(0, None))
    axes.xaxis.set_major_formatter("{x:,.6g}")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    return figure, axes


def _colours(result: ExperimentResult, rows: Sequence[CellResult]) -> list[str]:
    """Returns green for the recommended cell, orange for the front, blue if the objective is met, else grey."""
    front = result.front

    def colour(row: CellResult) -> str:
        if row is result.recommended:
            return GREEN
        if row.cell in front:
            return ORANGE
        return BLUE if row.candidate and row.candidate.meets_objective else GREY

    return [colour(row) for row in rows]
