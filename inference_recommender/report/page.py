"""`report.html`: one self-contained page that says what was decided, why, and on what evidence. Pure.

The pages are Jinja2 templates beside this file; an experiment's page extends the same frame. The same input gives the
same bytes.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from inference_recommender import output
from inference_recommender.measurement import Measurement
from inference_recommender.report import plots
from inference_recommender.report.document import Report, shown
from inference_recommender.report.found import NOTHING, Found, found
from inference_recommender.report.of_run import PROOF_VERDICTS, run_report
from inference_recommender.report.of_simulation import day_in_words, differences
from inference_recommender.report.queue import queue_against_compute
from inference_recommender.report.simulation_plots import cost_against_risk, day_plots
from inference_recommender.run_folder import RunFolder
from inference_recommender.simulate.kept import Simulated, Simulation
from workloads import Candidate, Proof, Provenance, Recommendation, Workload
from workloads.instances import instance_shape

UNKNOWN = "unknown"
HERE = Path(__file__).parent


def page(
    workload: Workload,
    recommendation: Recommendation,
    measured: Sequence[Measurement],
    request: Mapping[str, Any],
    found: Found = NOTHING,
) -> str:
    """Returns the page of a run. `request` is the job's: the plots show the traffic that it asked for."""
    objective, chosen = workload.latency_objective, recommendation.recommended
    peak = objective.peak_invocations_per_minute
    if chosen is not None and chosen.autoscaling is None:
        chosen = None
    return render(
        "run.html",
        workload=workload,
        report=run_report(recommendation.provenance.job_name, workload, recommendation, found, measured),
        asked=f"{objective.percentile} model latency ≤ {objective.model_latency_ms:g} ms at {peak:,} "
        "invocations per minute",
        percentile=objective.percentile,
        none_chosen=output.none_chosen(recommendation.candidates),
        chosen=chosen,
        count_explained=output.count_explained(chosen, peak, workload.sizing) if chosen else "",
        rows_explained=output.rows_explained(objective, chosen),
        scaling_explained=output.scaling_explained(chosen, workload.sizing) if chosen else "",
        parts=_parts(chosen) if chosen else {},
        candidates=recommendation.candidates,
        notes=output.notes,
        client_latencies=output.client_latencies,
        cpu=lambda candidate: _cpu(candidate, recommendation.provenance),
        origin=recommendation.provenance,
        evidence=[
            (
                measurement.instance_type,
                _plots(workload, measurement, candidate, request, _proof_of(candidate, recommendation)),
            )
            for measurement, candidate in zip(measured, recommendation.candidates, strict=False)
        ],
        figures=figures_of_run(recommendation, measured),
        proof=recommendation.proof,
        proof_verdicts=PROOF_VERDICTS,
    )


def figures_of_run(recommendation: Recommendation, measured: Sequence[Measurement]) -> dict[str, plots.Plot]:
    """Returns the figures that stand beside the tables of a run's report, by title; those of single tests are not
    among them.
    """
    known: dict[str, plots.Plot | None] = {"Waiting against computing": queue_against_compute(measured)}
    return {title: plot for title, plot in known.items() if plot is not None}


def draw(run_folder: RunFolder) -> None:
    """Writes a run's report.html, of all that its folder holds. Raises `UsageError` or `InvalidDocument`."""
    run_folder.keep_report(page_of(run_folder))


def page_of(run_folder: RunFolder) -> str:
    """Returns the page of all that a run's folder holds. Raises `UsageError` or `InvalidDocument`."""
    inputs = run_folder.workload(), run_folder.recommendation(), run_folder.measurements(), run_folder.request()
    return page(*inputs, found(run_folder.path))


def summary_page(report: Report, figures: Mapping[str, plots.Plot] | None = None) -> str:
    """Returns the page of a report that is its decision, its figures by title, and its tables."""
    return render("summary.html", report=report, figures=figures or {})


def simulation_page(report: Report, simulation: Simulation, workload: Workload) -> str:
    """Returns the page of a simulation."""
    day, policies, today = simulation.day, simulation.by_cost(), simulation.today

    def changed(policy: Simulated) -> str:
        rows = differences(today, policy) if today and policy is simulation.chosen else ()
        return "; ".join(f"{key} {there or 'none'} → {here or 'none'}" for key, there, here in rows)

    return render(
        "simulation.html",
        report=report,
        simulation=simulation,
        policies=policies,
        shown=policies.index(simulation.chosen),
        changed=changed,
        day_explained=(
            f"{day_in_words(day)}. Every policy has the same arrivals and the same service here. A point is "
            f"{day.minutes_per_entry:g} minutes: their mean load, instances and cost, and their worst latency and "
            "share of late requests. Latency is estimated from that share as if it were exponential, which is rough "
            "far below the objective."
        ),
        figures={
            **day_plots(simulation, workload.latency_objective),
            "Cost against risk": cost_against_risk(simulation),
        },
    )


def render(template: str, *, folder: Path = HERE, **values: Any) -> str:
    """Fills a template of `folder`; it may extend `base.html`. Missing values raise, and text is escaped."""
    environment = Environment(
        loader=FileSystemLoader([folder, HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"figure": _figure, "usd": _usd, "name": _name, "shown": shown, "file_name": _file_name}
    return environment.get_template(template).render(values) + "\n"


def _parts(chosen: Candidate) -> dict[str, int]:
    """Returns the instances that the peak needs and those that each kind of headroom added."""
    return {name: count for name, count in chosen.instance_count_parts.items() if count or name == "peak"}


def _cpu(candidate: Candidate, origin: Provenance) -> str:
    """A machine that stands in for an instance type has its own number of cores."""
    shape = instance_shape(candidate.instance_type)
    of_type = shape.vcpus if shape else None
    vcpus = output.cores(origin.machine) if origin.measured_on == "local" else of_type
    said = output.cpu_utilization(candidate.cpu_utilization_percent, vcpus) or UNKNOWN
    return said.replace(" vCPUs", "\N{NO-BREAK SPACE}vCPUs")


def _plots(
    workload: Workload, measured: Measurement, candidate: Candidate, request: Mapping[str, Any], proof: Proof | None
) -> dict[str, plots.Plot]:
    """Returns the plots of one test by title; none where there is no time series of it."""
    series = measured.series
    if series is None or not series.seconds:
        return {}
    objective, complete = workload.latency_objective, series.complete()
    shown = {
        "Throughput over time": plots.throughput_over_time(
            complete, request["InputConfig"].get("TrafficPattern"), measured.warm_up_s
        ),
        "Users and open arrivals": plots.latency_against_rate(complete, measured, candidate, objective, proof),
    }
    if series.model_latency_quantiles_ms:
        shown["Latency distribution"] = plots.latency_distribution(series.model_latency_quantiles_ms, objective)
    return shown


def _proof_of(candidate: Candidate, recommendation: Recommendation) -> Proof | None:
    """A proof is of the recommended candidate alone."""
    return recommendation.proof if candidate == recommendation.recommended else None


def _name(candidate: Candidate) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in candidate.environment.items())
    return f"{candidate.instance_type} {settings}".strip()


def _file_name(title: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-")


def _figure(value: float | None, spec: str, missing: str = UNKNOWN) -> str:
    return missing if value is None else format(value, spec)


def _usd(value: float | None) -> str:
    return UNKNOWN if value is None else f"${value:,.2f}"
