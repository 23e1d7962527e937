"""The experiment's table on a terminal, in the order of its cells."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from inference_recommender.experiment.result import Result, Row
from inference_recommender.output import number

CHEAPEST, FRONT = "*", "P"
WORDS = ("", "variant", "optimisation", "dynamic\nbatching", "instance\ngroup", "instance type", "objective")
HEADS = (
    "vCPU",
    "GiB",
    "GPU",
    "GPU\nGiB",
    "count",
    "inv/min",
    "open\n/min",
    "job's\nms",
    "P95\nms",
    "GPU\n%",
    "USD/h",
    "USD/1M",
)
OPTIMISED_HEADS = ("P95 ms", "rows/min", "USD/1M rows", "P95 ×", "rows/min ×", "USD/1M ×")
RATIO_HEADS = ("speed-up\n×", "inv/min\n×", "P95\n×", "USD/1M\n×")


def show(result: Result, console: Console) -> None:
    """Prints the table, why cells have no figures, and the verdict."""
    objective = result.objective
    asked = f"{objective.percentile} ≤ {objective.model_latency_ms:g} ms"
    title = f"{result.workload}: {asked} at {objective.peak}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for head in WORDS:
        table.add_column(head, no_wrap=True)
    for head in (*HEADS, *(RATIO_HEADS if result.baseline else ())):
        table.add_column(head, justify="right", no_wrap=True)
    for row in result.rows:
        missed = row.candidate is None or not row.candidate.meets_objective
        table.add_row(*_cells(row, with_ratios=result.baseline is not None), style="dim" if missed else "")
    console.print(table)
    for short, best in optimised(result).items():
        console.print(_short_table(short, best, objective.rows_per_invocation))
    for line in (*_reasons(result.rows), *legend(result), verdict(result)):
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def optimised(result: Result) -> dict[str, tuple[Row, ...]]:
    """Returns the short tables of an experiment with a baseline, by their titles: the best row of each type."""
    tables = {
        "Optimised for latency: the lowest P95 of each instance type": result.lowest_latency,
        "Optimised for cost: the cheapest requests of each instance type": result.lowest_cost,
    }
    return {title: result.rows_of(cells) for title, cells in tables.items() if cells}


def optimised_figures(row: Row, rows_per_invocation: int) -> tuple[tuple[float | None, str], ...]:
    """Returns a row's figures, each with its format, in the order of `OPTIMISED_HEADS`; costs are at capacity."""
    ratios, cost = row.ratios, row.cost_per_million_at_capacity_usd
    return (
        (row.compared_ms, milliseconds(row.compared_ms)),
        (row.rate and row.rate * rows_per_invocation, ",.0f"),
        (None if cost is None else cost / rows_per_invocation, ",.3f"),
        (ratios.p95_latency if ratios else None, ".2f"),
        (ratios.invocations_per_minute if ratios else None, ".2f"),
        (ratios.cost_per_million if ratios else None, ".2f"),
    )


def _short_table(title: str, rows: Sequence[Row], rows_per_invocation: int) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for head in ("instance type", "variant"):
        table.add_column(head, no_wrap=True)
    for head in OPTIMISED_HEADS:
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.instance_type, row.variant, *(number(*each) for each in optimised_figures(row, rows_per_invocation))
        )
    return table


def legend(result: Result) -> list[str]:
    lines = [
        f"{CHEAPEST} recommended: of the cells that meet the objective the cheapest, or where costs are not known the "
        "one of fewest instances.",
        f"{FRONT} on the Pareto front: no other cell beats it in latency and in {result.front_against} both.",
        "inv/min is per instance, of the test's users; open/min is the rate of open arrivals that sizes the fleet. "
        "Count and USD are of the fleet for the peak.",
    ]
    if result.objective.rows_per_invocation > 1:
        lines.append(f"An invocation has {result.objective.rows_per_invocation} rows; USD/1M is of invocations.")
    if result.baseline:
        lines.append(
            f"× is the ratio to {result.baseline}, and for the speed-up to {result.baseline.variant} on the same type; "
            "that of USD/1M is of one instance at its capacity."
        )
    return lines


def verdict(result: Result) -> str:
    if result.why_no_verdict:
        return f"No verdict: {result.why_no_verdict}"
    if result.recommended is None:
        return "No cell meets the objective."
    (row,) = [row for row in result.rows if row.cheapest]
    count = row.candidate.instance_count if row.candidate else None
    chosen = f"Recommended: {count} × {row.instance_type} with {row.variant}."
    return f"{chosen} {locality(result)}".strip()


def locality(result: Result) -> str:
    """Returns a caution about figures that SageMaker did not measure."""
    if result.origin.measured_on == "sagemaker":
        return ""
    return (
        f"Measured on this machine ({result.origin.machine}), which stood in for every instance type, not on SageMaker."
    )


def milliseconds(value: float | None) -> str:
    """Returns the format of a latency: whole numbers from 100 ms on."""
    return ",.0f" if value is not None and value >= 100 else ".3g"


def _cells(row: Row, *, with_ratios: bool) -> tuple[str, ...]:
    candidate, ratios = row.candidate, row.ratios
    figures = (
        (row.vcpus, "d"),
        (row.memory_gib, "g"),
        (row.gpus, "d"),
        (row.gpu_memory_gib, "g"),
        (candidate.instance_count if candidate else None, "d"),
        (row.rate, ",.0f"),
        (candidate.max_invocations_per_minute if candidate else None, ",.0f"),
        (row.latency_ms, milliseconds(row.latency_ms)),
        (row.p95_ms, milliseconds(row.p95_ms)),
        (row.gpu_utilization_percent, ".0f"),
        (candidate.cost_per_hour_usd if candidate else None, ",.3f"),
        (candidate.cost_per_million_invocations_usd if candidate else None, ",.3f"),
    )
    compared = (
        (row.speed_up, ".2f"),
        (ratios.invocations_per_minute if ratios else None, ".2f"),
        (ratios.p95_latency if ratios else None, ".2f"),
        (ratios.cost_per_million if ratios else None, ".2f"),
    )
    marks = (CHEAPEST if row.cheapest else "") + (FRONT if row.on_pareto_front else "")
    shown = (*figures, *(compared if with_ratios else ()))
    met = "–" if candidate is None else "met" if candidate.meets_objective else "missed"
    words = (row.variant, row.optimisation, row.dynamic_batching or "no", row.instance_groups, row.instance_type, met)
    return (marks, *words, *(number(value, spec) for value, spec in shown))


def _reasons(rows: Sequence[Row]) -> list[str]:
    """Returns why a cell has no figures, for each such cell, and why a price is unknown, once for each type."""
    missing = [
        f"{row.cell}: {row.candidate.reason if row.candidate else 'Not measured.'}" for row in rows if _lacks(row)
    ]
    unpriced = {
        row.instance_type: row.candidate.cost_reason or ""
        for row in rows
        if row.candidate and row.candidate.meets_objective and row.candidate.cost_per_hour_usd is None
    }
    return [*missing, *(f"{name}: {reason}" for name, reason in unpriced.items())]


def _lacks(row: Row) -> bool:
    return row.candidate is None or not row.candidate.meets_objective
