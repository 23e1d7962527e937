"""What a person sees: progress on stderr while a job runs, the recommendation as a table on stdout."""

from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from inference_recommender.progress import Pulse
from workloads import Candidate, Recommendation

MISSING = "-"
"""In a table's cell; the lines below the table say why."""


class JobProgress:
    """A bar of the job's traffic on a terminal; elsewhere one line whenever the status changes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[latest]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None
        self._status: str | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def pulse(self, pulse: Pulse) -> None:
        if pulse.status != self._status and not self._console.is_terminal:
            self._console.print(f"{pulse.job_name}: {pulse.status}", highlight=False)
        self._status = pulse.status
        if self._task is None:
            self._task = self._bar.add_task("", total=pulse.expected_s, latest="")
        self._bar.update(
            self._task,
            description=f"{pulse.job_name} {pulse.status}",
            completed=min(pulse.elapsed_s, pulse.expected_s),
            latest=_latest(pulse),
        )


def _latest(pulse: Pulse) -> str:
    if pulse.users is None or pulse.invocations_per_minute is None:
        return ""
    latency = "" if pulse.p99_ms is None else f", p99 {pulse.p99_ms:.1f} ms"
    return f"{pulse.users:.0f} users, {pulse.invocations_per_minute:,.0f} invocations/min{latency}"


def show(recommendation: Recommendation, console: Console) -> None:
    """The candidates as a table, then the decision in words."""
    table = Table(title=f"{recommendation.workload}: {_asked(recommendation)}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("candidate")
    for head in ("max\ninv/min", "latency\nms", "p99\nms", "count", "min-max", "target", "USD/h", "USD/1M"):
        table.add_column(head, justify="right")
    for one in recommendation.candidates:
        table.add_row(*_cells(one), style="" if one.meets_objective else "dim")
    console.print(table)
    for one in recommendation.candidates:
        console.print(f"{one.instance_type}: {one.reason} {one.cost_reason or ''}", highlight=False, soft_wrap=True)
    console.print(_verdict(recommendation), highlight=False, soft_wrap=True)


def _cells(one: Candidate) -> tuple[str, ...]:
    percentiles, scaling = one.model_latency_percentiles_ms, one.autoscaling
    return (
        one.instance_type,
        _number(one.max_invocations_per_minute, ",.0f"),
        _number(one.model_latency_ms, ".4g"),
        _number(percentiles.p99, ".3g"),
        _number(one.instance_count, "d"),
        f"{scaling.min_capacity}-{scaling.max_capacity}" if scaling else MISSING,
        _number(scaling.target_invocations_per_instance if scaling else None, ",.0f"),
        _number(one.cost_per_hour_usd, ",.3f"),
        _number(one.cost_per_million_invocations_usd, ",.3f"),
    )


def _asked(recommendation: Recommendation) -> str:
    objective = recommendation.objective
    return (
        f"{objective.percentile} ≤ {objective.model_latency_ms:g} ms "
        f"at {objective.peak_invocations_per_minute:,} invocations/min"
    )


def _verdict(recommendation: Recommendation) -> str:
    chosen, origin = recommendation.recommended, recommendation.provenance
    if chosen is None:
        return "No candidate meets the objective: no recommendation was written."
    recommended = f"Recommended: {chosen.instance_count} × {chosen.instance_type}."
    if origin.measured_on == "sagemaker":
        return recommended
    return f"{recommended} Measured on this machine ({origin.machine}), not on SageMaker."


def _number(value: float | None, spec: str) -> str:
    return MISSING if value is None else format(value, spec)
