"""The result of a command: one typed document, which `text`, `page` and `markdown` render.

A command builds a `Report` and hands it to a renderer; it formats no table of its own. Figures are numbers, with their
unit in the column's name. An unknown figure is None, never 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from pydantic import Field

from workloads import POISSON, LatencyObjective, Proof
from workloads.document import Document

ReportKind = Literal[
    "run", "proof", "tune", "simulation", "experiment", "comparison", "cold-start", "jobs", "size", "arrivals"
]
ReportVerdict = Literal["met", "missed", "unknown"]
Value = str | int | float | bool | None
Row = Sequence[Value] | Mapping[str, Any]
"""Figures in the order of the columns, or by the columns' names; a name that is not there is an unknown figure."""
MISSING = "–"
"""Shown for an unknown figure."""


class Column(Document):
    name: str = Field(description="The key in a row, with the unit.")
    title: str = Field(description="The head of the column, for people.")
    spec: str = Field(default="", description="The format of a number; empty for text.")


class Table(Document):
    """Rows of figures by the names of the columns."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[dict[str, Value], ...]
    note: str = Field(default="", description="How to read the figures.")
    detail: bool = Field(default=False, description="Whether only the page and folded Markdown show the table.")

    def cells(self, row: Mapping[str, Value]) -> tuple[str, ...]:
        """Returns a row's figures as text, in the order of the columns."""
        return tuple(shown(row[column.name], column.spec) for column in self.columns)


class Highlight(Document):
    """A figure of the report's first screen."""

    label: str
    value: str


class Report(Document):
    """The result of a command and the evidence for its decision."""

    kind: ReportKind
    name: str = Field(description="The folder's name, or that of the command's subject.")
    workload: str | None = Field(description="None if the folder does not name one.")
    description: str = Field(default="", description="The workload's description.")
    objective: str = Field(description="The objective in words.")
    verdict: ReportVerdict = Field(description="Met: measured or proven. Unknown: not measured, or inconclusive.")
    decision: str = Field(description="What to do, in a sentence.")
    highlights: tuple[Highlight, ...] = Field(default=(), description="Figures of the first screen.")
    cautions: tuple[str, ...] = Field(default=(), description="Limits of the figures, the most important first.")
    tables: tuple[Table, ...] = Field(description="The main table first.")
    notes: tuple[str, ...] = Field(default=(), description="A caveat or an explanation a line, below the main table.")
    proof: Proof | None = Field(default=None, description="The last proof; null: none was made.")
    patch: str | None = Field(default=None, description="Lines for workload.toml; null: no change is proposed.")
    not_tested: tuple[str, ...] = Field(default=(), description="What the measurements do not cover.")
    environment: dict[str, str] = Field(default={}, description="Subject, machine, time and hashes of the inputs.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Plot:
    svg: str
    """An <svg> element without prologue, date or fixed size, in the page's colours."""
    csv: str
    """The drawn points, a line each, with the series' name in the legend."""
    wide: bool = False
    """Whether the plot takes the page's whole width."""

    @property
    def csv_link(self) -> str:
        """A link that holds the data itself."""
        return f"data:text/csv;charset=utf-8,{quote(self.csv)}"


def table(
    name: str,
    title: str,
    columns: Sequence[tuple[str, str, str]],
    rows: Sequence[Row],
    note: str = "",
    *,
    detail: bool = False,
) -> Table:
    """Returns a table of `columns`, each a name, a head and a number format, and of `rows` in their order."""
    heads = tuple(Column(name=key, title=head, spec=spec) for key, head, spec in columns)
    names = [head.name for head in heads]
    keyed = tuple(
        {name: row.get(name) for name in names} if isinstance(row, Mapping) else dict(zip(names, row, strict=True))
        for row in rows
    )
    return Table(name=name, title=title, columns=heads, rows=keyed, note=note, detail=detail)


def shown(value: Value, spec: str) -> str:
    """Returns a figure as text."""
    match value:
        case None:
            return MISSING
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return format(value, spec)
        case _:
            return value


def objective_text(objective: LatencyObjective) -> str:
    """Returns the objective in words."""
    arrivals = "" if objective.arrivals == POISSON else f", {objective.arrivals.text}"
    return f"{objective.percentile} model latency ≤ {objective.model_latency_ms:g} ms at {objective.peak}{arrivals}"
