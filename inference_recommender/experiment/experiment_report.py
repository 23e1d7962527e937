"""The report of an experiment: all cells in one table, the recommended one, and plots. Pure."""

from collections.abc import Iterator, Sequence

from inference_recommender.experiment import plots
from inference_recommender.experiment.result import ExperimentResult, ExperimentRow
from inference_recommender.report.candidates import no_candidate
from inference_recommender.report.configuration import configuration_table
from inference_recommender.report.document import Highlight, Plot, Report, Table, Value, objective_text, table
from inference_recommender.report.inputs import FolderInputs
from inference_recommender.report.sections import COLD_START, OTHER_PAYLOADS, generator_table, local_caution, present
from workloads import Workload
from workloads.instances import shapes_source

CELLS = (
    ("mark", "", ""),
    ("variant", "variant", ""),
    ("optimisation", "optimisation", ""),
    ("dynamic_batching", "batching", ""),
    ("instance_groups", "instance group", ""),
    ("instance_type", "instance type", ""),
    ("objective", "objective", ""),
    ("vcpus", "vCPU", "d"),
    ("memory_gib", "GiB", "g"),
    ("gpus", "GPU", "d"),
    ("gpu_memory_gib", "GPU GiB", "g"),
    ("neuron_chips", "chips", "d"),
    ("instance_count", "instances", ",d"),
    ("invocations_per_minute", "closed-loop /min", ",.0f"),
    ("max_invocations_per_minute", "capacity /min", ",.0f"),
    ("p95_ms", "P95 ms", ",.4g"),
    ("gpu_utilization_percent", "GPU %", ".0f"),
    ("cost_per_hour_usd", "$/h", ",.3f"),
    ("cost_per_million_invocations_usd", "$/1M", ",.3f"),
)
RATIOS = (
    ("speed_up", "speed-up", ".2f"),
    ("invocations_ratio", "/min ×", ".2f"),
    ("p95_ratio", "P95 ×", ".2f"),
    ("cost_ratio", "$/1M ×", ".2f"),
)
BEST = (
    ("instance_type", "instance type", ""),
    ("variant", "variant", ""),
    ("p95_ms", "P95 ms", ",.3g"),
    ("rows_per_minute", "rows/min", ",.0f"),
    ("cost_per_million_rows_usd", "$/1M rows", ",.3f"),
    *RATIOS[2:3],
    *RATIOS[1:2],
    *RATIOS[3:],
)


def experiment_report(name: str, result: ExperimentResult, workload: Workload, inputs: FolderInputs) -> Report:
    candidates = [row.candidate for row in result.rows if row.candidate]
    origin, base = result.origin, result.baseline
    facts = (origin.machine, origin.measured_on, result.model, result.traffic)
    return Report(
        kind="experiment",
        name=name,
        workload=result.workload,
        description=workload.description,
        objective=objective_text(result.objective),
        verdict="unknown" if result.why_no_verdict else "met" if result.recommended else "missed",
        decision=decision(result),
        highlights=tuple(_highlights(result)),
        cautions=local_caution(origin.measured_on, origin.machine),
        tables=present(
            [
                _cells(result),
                *_best(result),
                generator_table(inputs),
                configuration_table(workload, candidates, base.variant if base else None),
            ]
        ),
        notes=tuple(_notes(result)),
        not_tested=tuple(_untested(result)),
        environment={
            "fingerprint": inputs.fingerprint(*facts),
            "experiment": result.experiment,
            "published as": result.published or "not published: the workload's own model and load",
            "model": result.model,
            "measured on": f"{origin.measured_on}: {origin.machine}",
            "traffic": result.traffic,
            "measured at": origin.measured_at,
            "region": origin.region,
            "jobs": ", ".join(arn.rsplit("/", 1)[-1] for arn in result.job_arns) or "none",
            "instance types": shapes_source(),
            **inputs.facts(),
        },
    )


def decision(result: ExperimentResult) -> str:
    """Returns the fleet to deploy, or why there is none."""
    if result.why_no_verdict:
        return f"No verdict: {result.why_no_verdict}"
    chosen = _chosen(result)
    if chosen is None or chosen.candidate is None:
        return no_candidate([row.candidate for row in result.rows if row.candidate])
    candidate = chosen.candidate
    cost = "" if candidate.cost_per_hour_usd is None else f", ${candidate.cost_per_hour_usd:,.2f}/h"
    return f"Recommended: {candidate.instance_count} × {chosen.instance_type} with {chosen.variant}{cost}."


def _chosen(result: ExperimentResult) -> ExperimentRow | None:
    return next((row for row in result.rows if row.cheapest), None)


def _highlights(result: ExperimentResult) -> Iterator[Highlight]:
    chosen = _chosen(result)
    if chosen is None or (candidate := chosen.candidate) is None:
        return
    yield Highlight(label="fleet", value=f"{candidate.instance_count} × {chosen.instance_type}")
    yield Highlight(label="variant", value=chosen.variant)
    yield Highlight(label="capacity /min per instance", value=f"{candidate.max_invocations_per_minute or 0:,.0f}")
    if candidate.cost_per_hour_usd is not None:
        yield Highlight(label="cost per hour", value=f"${candidate.cost_per_hour_usd:,.2f}")


def _cells(result: ExperimentResult) -> Table:
    columns = (*CELLS, *(RATIOS if result.baseline else ()))
    return table("cells", "Cells", columns, [_cell(row, columns) for row in result.rows])


def _cell(row: ExperimentRow, columns: Sequence[tuple[str, str, str]]) -> tuple[Value, ...]:
    """Returns a row's values: its own, its candidate's, or the ratios."""
    ratios, candidate = row.ratios, row.candidate
    values: dict[str, Value] = {
        "mark": ("*" if row.cheapest else "") + ("P" if row.on_pareto_front else ""),
        "dynamic_batching": row.dynamic_batching or "no",
        "objective": None if candidate is None else "met" if candidate.meets_objective else "missed",
        "invocations_per_minute": row.rate,
        "invocations_ratio": ratios.invocations_per_minute if ratios else None,
        "p95_ratio": ratios.p95_latency if ratios else None,
        "cost_ratio": ratios.cost_per_million if ratios else None,
    }
    return tuple(
        values[name] if name in values else getattr(row if hasattr(row, name) else candidate, name, None)
        for name, _, _ in columns
    )


def _best(result: ExperimentResult) -> Iterator[Table]:
    """Yields the tables of published experiments: the best cell of each instance type."""
    if result.baseline is None:
        return
    figures = (
        ("latency", "Optimised for latency: the lowest P95 of each instance type", lambda row: row.compared_ms),
        ("cost", "Optimised for cost: the cheapest requests of each instance type", lambda row: row.rate and -row.rate),
    )
    rows = result.objective.rows_per_invocation
    for name, title, figure in figures:
        best = result.best_of_each_type(figure)
        if best:
            yield table(f"optimised-for-{name}", title, BEST, [_best_cell(row, rows) for row in best])


def _best_cell(row: ExperimentRow, rows_per_invocation: int) -> tuple[Value, ...]:
    ratios, cost = row.ratios, row.cost_per_million_at_capacity_usd
    return (
        row.instance_type,
        row.variant,
        row.compared_ms,
        row.rate and row.rate * rows_per_invocation,
        None if cost is None else cost / rows_per_invocation,
        ratios.p95_latency if ratios else None,
        ratios.invocations_per_minute if ratios else None,
        ratios.cost_per_million if ratios else None,
    )


def _notes(result: ExperimentResult) -> Iterator[str]:
    for row in result.rows:
        if row.candidate is None:
            yield f"{row.cell}: Not measured."
        elif not row.candidate.meets_objective:
            yield f"{row.cell}: {row.candidate.reason}"
    unpriced = (row for row in result.rows if row.candidate and row.candidate.cost_per_hour_usd is None)
    yield from dict.fromkeys(
        f"{row.instance_type}: {row.candidate.cost_reason}" for row in unpriced if row.candidate and row.rate
    )
    yield (
        "* recommended: the cheapest cell that meets the objective, or the fewest instances without prices. "
        f"P: on the Pareto front of latency and {result.front_against}."
    )
    yield "Rates are per instance. Instances and costs are of the fleet for the peak."
    if result.objective.rows_per_invocation > 1:
        yield f"An invocation has {result.objective.rows_per_invocation} rows; $/1M is of invocations."
    if result.baseline:
        yield (
            f"× is the ratio to {result.baseline}, of costs at capacity. A speed-up is the ratio to "
            f"{result.baseline.variant} on the same instance type."
        )
    if any(row.gpus for row in result.rows) and not any(row.gpu_utilization_percent for row in result.rows):
        yield "CloudWatch had no utilisation of the GPUs."


def _untested(result: ExperimentResult) -> Iterator[str]:
    if result.recommended:
        yield "The fleet of a cell under open arrivals. The command `prove` tests the deployed one."
    yield OTHER_PAYLOADS
    yield COLD_START


def experiment_plots(result: ExperimentResult) -> dict[str, Plot]:
    """Returns the plots by title."""
    if not any(row.rate and row.compared_ms for row in result.rows):
        return {}
    over_costs = result.front_against == "cost per million"
    shown = {
        "Latency against cost" if over_costs else "Latency against throughput": plots.tradeoff(result),
        "Throughput of one instance": plots.throughput(result),
    }
    if any(row.p95_ms is not None for row in result.rows):
        shown["Latency"] = plots.latencies(result)
    if any(row.speed_up is not None for row in result.rows):
        shown["Speed-up by optimisation"] = plots.speed_ups(result)
    if any(row.gpu_utilization_percent is not None for row in result.rows):
        shown["GPU utilisation"] = plots.gpu_utilisation(result)
    return shown
