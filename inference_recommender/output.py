"""Terminal output of all commands: help, width, sentences, progress of jobs. `report.text` prints results."""

import argparse
import re
import sys
from functools import partial
from typing import Any, Self, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from inference_recommender import progress
from workloads.program import printable

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
COMMANDS = {
    "run": "measure a workload and size its fleet",
    "prove": "whether the recommended fleet keeps its objective",
    "tune": "search the serving configuration with the highest capacity",
    "experiment": "measure every variant on every instance type, as one table",
    "simulate": "simulate autoscaling under a traffic trace",
    "size": "a fleet or a batch's shards from evidence, without AWS",
    "compare": "compare two runs: is the second one slower beyond the noise",
    "report": "render the report of a run, without AWS",
    "invoke": "send texts to a workload's deployed endpoint, print its answers",
    "register": "register the deployed model in the model registry",
    "jobs": "list, describe, explain and stop jobs, clean up after them",
}
"""Each command's summary."""
LOG_WIDTH = 120
"""Columns of a table if stdout is no terminal."""


def add_command(commands: Commands, example: str, description: str | None = None) -> argparse.ArgumentParser:
    """Adds a command whose help ends with an example, a command line without `python -m inference_recommender`."""
    name = example.split()[0]
    summary = COMMANDS[name]
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


class JobProgress(progress.Progress):
    """Shows a bar for each job's traffic on a terminal; elsewhere a line whenever a status changes."""

    def __init__(self, console: Console) -> None:
        super().__init__(partial(tell, console))
        self._console = console
        columns = (TextColumn("[bold]{task.description}"), BarColumn(bar_width=12), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        tell(self._bar.console, text, "yellow")  # rich prints it above the bar

    def update(self, update: progress.ProgressUpdate) -> None:
        """Prints the job's name, which is long, once on a terminal, and for each status elsewhere."""
        name = update.job_name
        if not self._console.is_terminal:
            super().update(update)
            return
        if name not in self._tasks:
            tell(self._console, update.title)
            self._tasks[name] = self._bar.add_task("", total=update.expected_s)
        completed = min(update.elapsed_s, update.expected_s)
        self._bar.update(self._tasks[name], description=f"{update.place} {update.status}".strip(), completed=completed)
