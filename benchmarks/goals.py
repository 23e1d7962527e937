"""Goals: the figure of a cell, its limit, and the verdict. Goals decide a benchmark's exit code.

A benchmark prints its goals as a table, and last one JSON document on one line, which benchmarks/run.py reads.
"""

import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

NO_VERDICT = 4
"""The exit code of a run that has no verdict."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A figure that has to be at least `limit`. `note` names the engines compared, or why there is no figure."""

    cell: str
    limit: float
    figure: float | None = None
    at_most: bool = False
    note: str = ""
    failed: bool = False
    """Our engine was not built or gave wrong answers, so the goal is missed without a figure."""

    @property
    def verdict(self) -> Literal["met", "missed", "not run"]:
        if self.failed:
            return "missed"
        if self.figure is None:
            return "not run"
        return "met" if (self.figure <= self.limit if self.at_most else self.figure >= self.limit) else "missed"

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Goal":
        """Reads a goal from a benchmark's JSON document."""
        return cls(**{key: value for key, value in document.items() if key != "verdict"})

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


def table(goals: Sequence[Goal]) -> str:
    """Returns a line for each goal with figure, limit and verdict."""
    width = max((len(goal.cell) for goal in goals), default=0) + 2
    lines = [f"{'goal':{width}}{'figure':>8}  {'limit':<9}verdict"]
    for goal in goals:
        figure = "-" if goal.figure is None else f"{goal.figure:.3g}"
        limit = f"{'≤' if goal.at_most else '≥'} {goal.limit:.3g}"
        lines.append(f"{goal.cell:{width}}{figure:>8}  {limit:<9}{goal.verdict:9}{goal.note}".rstrip())
    return "\n".join(lines)


def exit_code(goals: Iterable[Goal]) -> int:
    """Returns 1 if a goal is missed, else the code of a run without a verdict if a goal is not run, else 0."""
    verdicts = {goal.verdict for goal in goals}
    return 1 if "missed" in verdicts else NO_VERDICT if "not run" in verdicts else 0


def finish(benchmark: str, packages: Iterable[str], document: Mapping[str, Any], goals: Sequence[Goal]) -> int:
    """Prints the goals, and the JSON document on the last line. Returns the exit code."""
    print(table(goals))
    described = [goal.document() for goal in goals]
    print(json.dumps({"benchmark": benchmark, **machine(packages), **document, "goals": described}))
    return exit_code(goals)


def machine(packages: Iterable[str] = ()) -> dict[str, Any]:
    """Describes the machine and the versions of `packages`. None means that a package is not installed."""
    installed = {each.name: each.version for each in importlib.metadata.distributions()}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {package: installed.get(package) for package in packages},
    }


def cpu() -> str:
    """Returns the processor's name, family and widest instruction set."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = fields.get("flags", "").split()
    widest = next((name for name in ("avx512_vnni", "avx512f", "avx2") if name in flags), "")
    return f"{fields.get('model name', platform.machine())} family {fields.get('cpu family', '-')} {widest}".strip()
