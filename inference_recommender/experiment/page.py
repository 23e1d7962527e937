"""An experiment's result and `report.html`, drawn from its folder alone: the table, the trade-off, the provenance."""

from collections.abc import Iterator
from pathlib import Path

from inference_recommender.experiment import plots
from inference_recommender.experiment.evidence import experiment_report
from inference_recommender.experiment.folder import ExperimentFolder
from inference_recommender.experiment.result import Result, Row, result
from inference_recommender.experiment.terminal import (
    OPTIMISED_HEADS,
    milliseconds,
    optimised,
    optimised_figures,
)
from inference_recommender.report.document import Plot
from inference_recommender.report.inputs import FolderInputs, read_inputs
from inference_recommender.report.page import UNKNOWN, render
from workloads import Workload
from workloads.instances import shapes_source

MISSING = "–"
HEADS = (
    "variant",
    "model optimisation",
    "dynamic batching",
    "instance group",
    "instance type",
    "objective",
    "vCPUs",
    "memory GiB",
    "GPUs",
    "GPU memory GiB",
    "Neuron chips",
    "count",
    "invocations per minute and instance",
    "open arrivals that size it",
    "job's latency ms",
    "P95 ms",
    "GPU %",
    "cost USD/h",
    "USD per million",
    "the same at capacity",
)
RATIO_HEADS = ("speed-up", "inv/min ×", "P95 ×", "USD/1M ×")


def conclude(folder: ExperimentFolder) -> Result:
    """Sizes and compares the cells measured so far, and writes result and page into the folder."""
    concluded = concluded_from(folder)
    folder.keep_result(concluded)
    folder.keep_page(page(concluded, folder.workload(), read_inputs(folder.path)))
    return concluded


def concluded_from(folder: ExperimentFolder) -> Result:
    """Sizes and compares the cells measured so far."""
    experiment, workload = folder.experiment(), folder.workload()
    measured = folder.measured(experiment.cells)
    return result(experiment, workload, measured, folder.origin(), folder.job_arns())


def page(result: Result, workload: Workload, inputs: FolderInputs | None = None) -> str:
    """Returns the whole page."""
    objective = result.objective
    return render(
        "experiment.html",
        folder=Path(__file__).parent,
        result=result,
        description=workload.description,
        report=experiment_report(result.experiment, result, workload, inputs or FolderInputs()),
        asked=f"{objective.percentile} model latency ≤ {objective.model_latency_ms:g} ms at "
        f"{objective.peak_invocations_per_minute:,} invocations per minute",
        chosen=next((row for row in result.rows if row.cheapest and row.candidate), None),
        heads=(*HEADS, *(RATIO_HEADS if result.baseline else ())),
        figures=lambda row: _figures(row, with_ratios=result.baseline is not None),
        missing=MISSING,
        notes=list(_notes(result)),
        optimised=optimised(result),
        optimised_heads=OPTIMISED_HEADS,
        optimised_figures=lambda row: optimised_figures(row, objective.rows_per_invocation),
        plots=_plots(result),
        missed=[row for row in result.rows if row.candidate is None or not row.candidate.meets_objective],
        facts=_facts(result),
    )


def _figures(row: Row, *, with_ratios: bool) -> tuple[tuple[float | None, str], ...]:
    """Returns a row's figures, each with its format, in the order of the table's heads."""
    candidate, ratios = row.candidate, row.ratios
    figures = (
        (row.vcpus, "d"),
        (row.memory_gib, "g"),
        (row.gpus, "d"),
        (row.gpu_memory_gib, "g"),
        (row.neuron_chips, "d"),
        (candidate.instance_count if candidate else None, "d"),
        (row.rate, ",.0f"),
        (candidate.max_invocations_per_minute if candidate else None, ",.0f"),
        (row.latency_ms, milliseconds(row.latency_ms)),
        (row.p95_ms, milliseconds(row.p95_ms)),
        (row.gpu_utilization_percent, ".0f"),
        (candidate.cost_per_hour_usd if candidate else None, ",.2f"),
        (candidate.cost_per_million_invocations_usd if candidate else None, ",.2f"),
        (row.cost_per_million_at_capacity_usd, ",.2f"),
    )
    compared = (
        (row.speed_up, ".2f"),
        (ratios.invocations_per_minute if ratios else None, ".2f"),
        (ratios.p95_latency if ratios else None, ".2f"),
        (ratios.cost_per_million if ratios else None, ".2f"),
    )
    return (*figures, *(compared if with_ratios else ()))


def _notes(result: Result) -> Iterator[str]:
    yield (
        "Count, cost per hour and per million are of the fleet for the peak; the rest is of one instance. "
        f"{MISSING}: not known."
    )
    yield (
        "Invocations are those of the test's closed-loop users, as published tables have them. Users wait for their "
        "answers, and callers do not: a fleet is sized by the rate of open arrivals within the objective, measured or "
        "estimated from the users' records; where no rate is within it, by the users' own."
    )
    if result.objective.rows_per_invocation > 1:
        yield f"An invocation has {result.objective.rows_per_invocation} rows; USD per million is of invocations."
    yield _on_gpus(result)
    yield f"Front: no other cell beats it in latency and in {result.front_against} both."
    if result.front_against == "invocations per minute":
        yield "Prices are not known for every cell, so the front is not drawn over costs."
    if result.baseline:
        yield (
            f"Ratios are to {result.baseline}; that of costs is of one instance at its capacity. A speed-up is that of "
            f"invocations to {result.baseline.variant} on the same instance type."
        )


def _on_gpus(result: Result) -> str:
    if not any(row.gpus for row in result.rows):
        return "No instance type here has a GPU, so there is no utilisation of one to show."
    if all(row.gpu_utilization_percent is None for row in result.rows):
        return "CloudWatch had no utilisation of the GPUs: an account on this machine publishes none."
    return "GPU %: the mean utilisation of a GPU in the test's busiest minute."


def _plots(result: Result) -> dict[str, Plot]:
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


def _facts(result: Result) -> dict[str, str]:
    origin = result.origin
    return {
        "experiment": result.experiment,
        "published as": result.published or "nothing: the workload's own model and load",
        "model": result.model,
        "measured on": f"{origin.measured_on}: {origin.machine}",
        "traffic": result.traffic,
        "measured at": origin.measured_at,
        "region": origin.region,
        "jobs": ", ".join(arn.rsplit("/", 1)[-1] for arn in result.job_arns) or UNKNOWN,
        "instance types": shapes_source(),
    }
