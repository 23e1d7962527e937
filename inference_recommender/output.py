"""How results and progress are shown: width, wrapping, missing marks, the bars of jobs, a recommendation's table."""

import sys
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from inference_recommender.progress import ProgressUpdate
from inference_recommender.report.wording import notes
from workloads import Candidate, Recommendation

LOG_WIDTH = 120
"""Columns of a table where stdout is not a terminal."""
MISSING = "-"
"""Shown for a figure that is not known; the lines below a table say why."""


def stdout_console(log_width: int = LOG_WIDTH) -> Console:
    """Returns a console as wide as the terminal, or `log_width` columns wide in a log."""
    return Console(width=None if sys.stdout.isatty() else log_width)


def tell(console: Console, text: str, style: str | None = None) -> None:
    """Prints a sentence whole, whatever the width, with no markup read into it."""
    console.print(text, style=style, highlight=False, soft_wrap=True, markup=False)


def warn(stderr: Console, text: str) -> None:
    tell(stderr, f"Warning: {text}", "yellow")


def number(value: float | None, spec: str) -> str:
    """Formats a figure of a table's cell."""
    return MISSING if value is None else format(value, spec)


class JobProgress:
    """Shows a bar for each job's traffic on a terminal; elsewhere a line whenever a status changes."""

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
        tell(self._bar.console, text, "yellow")  # rich prints it above the bar

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
        """Prints the job's name: on a terminal once, on a line of its own above the bar, since job names are long."""
        shown = (update.job_name, update.status)
        if self._console.is_terminal and update.job_name not in self._tasks:
            tell(self._console, f"{update.job_name}{place}")
        elif not self._console.is_terminal and shown != self._shown:
            tell(self._console, f"{update.job_name}{place}: {update.status}")
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
    """Prints the candidates as a table, then the decision in words."""
    table = Table(title=f"{recommendation.workload}: {_asked(recommendation)}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("candidate")
    for head in ("max\ninv/min", "latency\nms", "p99\nms", "count", "min-max", "target", "USD/h", "USD/1M"):
        table.add_column(head, justify="right")
    for candidate in recommendation.candidates:
        table.add_row(*_cells(candidate), style="" if candidate.meets_objective else "dim")
    console.print(table)
    for candidate in recommendation.candidates:
        tell(
            console,
            f"{_name(candidate)}: {' '.join((candidate.reason, *notes(candidate), candidate.cost_reason or ''))}",
        )
    tell(console, _decision(recommendation))


def _cells(candidate: Candidate) -> tuple[str, ...]:
    percentiles, scaling = candidate.model_latency_percentiles_ms, candidate.autoscaling
    return (
        _name(candidate),
        number(candidate.max_invocations_per_minute, ",.0f"),
        number(candidate.model_latency_ms, ".4g"),
        number(percentiles.p99, ".3g"),
        number(candidate.instance_count, "d"),
        f"{scaling.min_capacity}-{scaling.max_capacity}" if scaling else MISSING,
        number(scaling.target_invocations_per_instance if scaling else None, ",.0f"),
        number(candidate.cost_per_hour_usd, ",.3f"),
        number(candidate.cost_per_million_invocations_usd, ",.3f"),
    )


def _name(candidate: Candidate) -> str:
    return " ".join([candidate.instance_type, *(f"{key}={value}" for key, value in candidate.environment.items())])


def _asked(recommendation: Recommendation) -> str:
    objective = recommendation.objective
    return (
        f"{objective.percentile} ≤ {objective.model_latency_ms:g} ms "
        f"at {objective.peak_invocations_per_minute:,} invocations/min"
    )


def _decision(recommendation: Recommendation) -> str:
    chosen, origin = recommendation.recommended, recommendation.provenance
    if chosen is None:
        return "No candidate meets the objective: no recommendation was written."
    recommended = f"Recommended: {chosen.instance_count} × {chosen.instance_type}."
    if origin.measured_on != "local":
        return recommended
    return f"{recommended} Measured on this machine ({origin.machine}), not on SageMaker."
