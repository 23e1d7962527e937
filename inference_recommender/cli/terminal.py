"""What a person sees: progress on stderr while a job runs, the recommendation as a table on stdout."""

from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from inference_recommender.progress import ProgressUpdate
from inference_recommender.report.wording import notes
from workloads import Candidate, Recommendation

MISSING = "-"
"""In a table's cell; the lines below the table say why."""


class JobProgress:
    """A bar for each job's traffic on a terminal; elsewhere one line whenever a status changes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=12),
            TimeElapsedColumn(),
            TextColumn("{task.fields[latest]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._shown: tuple[str, str] | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        # Above the bar on a terminal; in a log a line among the others.
        self._bar.console.print(text, style="yellow", highlight=False, soft_wrap=True, markup=False)

    def update(self, update: ProgressUpdate) -> None:
        place = "" if update.jobs == 1 else f"{update.number} of {update.jobs} "
        self._tell(update, f" ({place.strip()})" if place else "")
        self._bar.update(
            self._task(update),
            description=f"{place}{update.status}",
            completed=min(update.elapsed_s, update.expected_s),
            latest=_latest(update),
        )

    def _tell(self, update: ProgressUpdate, place: str) -> None:
        """Job names are long: on a terminal each has a line of its own above its bar."""
        shown = (update.job_name, update.status)
        if self._console.is_terminal and update.job_name not in self._tasks:
            self._console.print(f"{update.job_name}{place}", highlight=False, soft_wrap=True)
        elif not self._console.is_terminal and shown != self._shown:
            self._console.print(f"{update.job_name}{place}: {update.status}", highlight=False, soft_wrap=True)
        self._shown = shown

    def _task(self, update: ProgressUpdate) -> TaskID:
        if update.job_name not in self._tasks:
            self._tasks[update.job_name] = self._bar.add_task("", total=update.expected_s, latest="")
        return self._tasks[update.job_name]


def _latest(update: ProgressUpdate) -> str:
    if update.users is None or update.invocations_per_minute is None:
        return ""
    latency = "" if update.p99_ms is None else f", p99 {update.p99_ms:.1f} ms"
    return f"{update.users:.0f} users, {update.invocations_per_minute:,.0f}/min{latency}"


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
        said = " ".join((one.reason, *notes(one), one.cost_reason or ""))
        console.print(f"{_name(one)}: {said}", highlight=False, soft_wrap=True)
    console.print(_verdict(recommendation), highlight=False, soft_wrap=True)


def _cells(one: Candidate) -> tuple[str, ...]:
    percentiles, scaling = one.model_latency_percentiles_ms, one.autoscaling
    return (
        _name(one),
        number(one.max_invocations_per_minute, ",.0f"),
        number(one.model_latency_ms, ".4g"),
        number(percentiles.p99, ".3g"),
        number(one.instance_count, "d"),
        f"{scaling.min_capacity}-{scaling.max_capacity}" if scaling else MISSING,
        number(scaling.target_invocations_per_instance if scaling else None, ",.0f"),
        number(one.cost_per_hour_usd, ",.3f"),
        number(one.cost_per_million_invocations_usd, ",.3f"),
    )


def _name(one: Candidate) -> str:
    return " ".join([one.instance_type, *(f"{key}={value}" for key, value in one.environment.items())])


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
    if origin.measured_on != "local":
        return recommended
    return f"{recommended} Measured on this machine ({origin.machine}), not on SageMaker."


def number(value: float | None, spec: str) -> str:
    """A figure in a table's cell."""
    return MISSING if value is None else format(value, spec)
