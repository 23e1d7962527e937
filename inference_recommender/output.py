"""Terminal output of all commands: help, width, sentences, progress of jobs. `report.text` prints results."""

import argparse
import re
import sys
from types import TracebackType
from typing import Any, Self, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from inference_recommender.progress import ProgressUpdate
from workloads.program import printable

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

LOG_WIDTH = 120
"""Columns of a table if stdout is no terminal."""


def add_command(
    commands: Commands, name: str, summary: str, example: str, description: str | None = None
) -> argparse.ArgumentParser:
    """Adds a command whose help ends with an example, a command line without `python -m inference_recommender`."""
    return commands.add_parser(
        name,
        help=summary,
        description=description or f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  python -m inference_recommender {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def stdout_console(log_width: int = LOG_WIDTH) -> Console:
    """Returns a console as wide as the terminal, or `log_width` columns wide in a log."""
    return Console() if sys.stdout.isatty() else _LogConsole(width=log_width)


class _LogConsole(Console):
    """Prints tables without trailing blanks."""

    def print(self, *objects: Any, **options: Any) -> None:
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write(re.sub(r" +$", "", captured.get(), flags=re.MULTILINE))


def tell(console: Console, text: str, style: str | None = None) -> None:
    """Prints a sentence on one line, without markup or control characters."""
    console.print(printable(text), style=style, highlight=False, soft_wrap=True, markup=False)


def warn(stderr: Console, text: str) -> None:
    tell(stderr, f"Warning: {text}", "yellow")


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
        """Prints the job's name, which is long: on a terminal once, on a line above the bar."""
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
    latency = "" if update.latency_ms is None else f", {update.percentile} {update.latency_ms:.1f} ms"
    return f"{update.users:.0f} users, {update.invocations_per_minute:,.0f}/min{latency}"
