"""The report of an experiment: its cells in one table, the decision, and what was not tested. Pure."""

from collections.abc import Iterator

from inference_recommender.experiment.result import Result, Row
from inference_recommender.experiment.terminal import locality
from inference_recommender.report.configuration import configuration_table
from inference_recommender.report.document import Report, Value, objective_text, table
from inference_recommender.report.inputs import FolderInputs
from inference_recommender.report.sections import COLD_START, OTHER_PAYLOADS, generator_table
from workloads import Workload

CELLS = (
    ("variant", "variant", ""),
    ("optimisation", "model optimisation", ""),
    ("instance_type", "instance type", ""),
    ("meets_objective", "objective met", ""),
    ("on_pareto_front", "on the front", ""),
    ("invocations_per_minute", "users had invocations/min", ",.0f"),
    ("max_invocations_per_minute", "open arrivals that size it", ",.0f"),
    ("p95_ms", "P95, ms", ",.4g"),
    ("instance_count", "instances", ",d"),
    ("cost_per_hour_usd", "USD/h", ",.2f"),
    ("cost_per_million_invocations_usd", "USD/million", ",.3f"),
)
COMPARED = (
    ("speed_up", "speed-up", ".2f"),
    ("invocations_ratio", "invocations/min ×", ".2f"),
    ("p95_ratio", "P95 ×", ".2f"),
    ("cost_ratio", "USD/million ×", ".2f"),
)


def experiment_report(name: str, result: Result, workload: Workload, inputs: FolderInputs) -> Report:
    compared = result.baseline is not None
    cells = table(
        "cells",
        "Cells",
        (*CELLS, *(COMPARED if compared else ())),
        [(*_cells(row), *(_ratios(row) if compared else ())) for row in result.rows],
        "Rates are of one instance, costs of the fleet. On the front: no other cell beats it in latency and in "
        f"{result.front_against} both." + (f" Ratios are to {result.baseline}." if compared else ""),
    )
    candidates = [row.candidate for row in result.rows if row.candidate]
    tables = (
        cells,
        generator_table(inputs),
        configuration_table(workload, candidates, result.baseline.variant if result.baseline else None),
    )
    origin = result.origin
    return Report(
        kind="experiment",
        name=name,
        workload=result.workload,
        description=workload.description,
        objective=objective_text(result.objective),
        verdict="unknown" if result.why_no_verdict else "met" if result.recommended else "missed",
        decision=decision(result),
        cautions=_cautions(result),
        tables=tuple(table for table in tables if table is not None),
        not_tested=tuple(_untested(result)),
        environment={
            "fingerprint": inputs.fingerprint(origin.machine, origin.measured_on, result.model, result.traffic),
            "experiment": result.experiment,
            "model": result.model,
            "measured on": f"{origin.measured_on}: {origin.machine}",
            "traffic": result.traffic,
            "measured at": origin.measured_at,
            "region": origin.region,
            **inputs.facts(),
        },
    )


def _cautions(result: Result) -> tuple[str, ...]:
    if not (said := locality(result)):
        return ()
    return (
        f"{said} vCPUs and memory are those of the types, not of this machine. The figures compare the variants; size "
        "production from jobs that SageMaker ran.",
    )


def decision(result: Result) -> str:
    """Returns what to do, in a sentence."""
    if result.why_no_verdict:
        return f"Conclude nothing yet: {result.why_no_verdict.removesuffix('.')}."
    chosen = next((row for row in result.rows if row.cheapest and row.candidate), None)
    if chosen is None or chosen.candidate is None:
        return f"Deploy none of the {len(result.rows)} cells: none meets the objective."
    candidate = chosen.candidate
    costs = "" if candidate.cost_per_hour_usd is None else f", for {candidate.cost_per_hour_usd:,.2f} USD an hour"
    least = "with the fewest instances" if candidate.cost_per_hour_usd is None else "the cheapest"
    return (
        f"Deploy {candidate.instance_count} × {chosen.instance_type} with {chosen.variant}{costs}: {least} of the "
        f"{sum(bool(row.candidate and row.candidate.meets_objective) for row in result.rows)} cells of "
        f"{len(result.rows)} that meet the objective."
    )


def _cells(row: Row) -> tuple[Value, ...]:
    candidate = row.candidate
    return (
        row.variant,
        row.optimisation,
        row.instance_type,
        candidate.meets_objective if candidate else None,
        row.on_pareto_front,
        row.rate,
        candidate.max_invocations_per_minute if candidate else None,
        row.p95_ms,
        candidate.instance_count if candidate else None,
        candidate.cost_per_hour_usd if candidate else None,
        candidate.cost_per_million_invocations_usd if candidate else None,
    )


def _ratios(row: Row) -> tuple[Value, ...]:
    ratios = row.ratios
    if ratios is None:
        return row.speed_up, None, None, None
    return row.speed_up, ratios.invocations_per_minute, ratios.p95_latency, ratios.cost_per_million


def _untested(result: Result) -> Iterator[str]:
    for row in result.rows:
        if row.candidate is None:
            yield f"{row.cell} was not measured."
    if result.recommended:
        yield "No cell's fleet was proven with open arrivals; the command prove does it for the deployed one."
    yield OTHER_PAYLOADS
    yield COLD_START
