"""The report of a run, a proof, a search, a survey, a simulation, an experiment or a comparison, before it is drawn.

`report --format json` prints it as it is; the Markdown and the page are drawn from it, so that all three say the same.
Figures are numbers with their unit in the column's name; what is not known is null, never 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from workloads import LatencyObjective, Proof
from workloads.document import Document

Kind = Literal["run", "proof", "capacity", "tune", "simulation", "experiment", "comparison"]
Verdict = Literal["met", "missed", "unknown"]
Value = str | int | float | bool | None
MISSING = "–"


class Column(Document):
    name: str = Field(description="The key in a row, with the unit.")
    title: str = Field(description="The head of the column, for people.")
    spec: str = Field(default="", exclude=True, description="The format of a number.")


class Table(Document):
    """Rows of figures by the names of the columns."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[dict[str, Value], ...]
    note: str = Field(default="", description="What a reader must know of the figures.")

    def cells(self, row: Mapping[str, Value]) -> tuple[str, ...]:
        """Returns a row's figures as text, in the order of the columns."""
        return tuple(shown(row[column.name], column.spec) for column in self.columns)


class Report(Document):
    """The evidence for one decision."""

    kind: Kind
    name: str = Field(description="The folder's name.")
    workload: str | None = Field(description="None where the folder does not say it.")
    description: str = Field(default="", description="The workload's own.")
    asked: str = Field(description="The objective in words.")
    verdict: Verdict = Field(description="Met: measured or proven. Unknown: nothing shows it, or a proof is unclear.")
    decision: str = Field(description="What to do, in a sentence.")
    cautions: tuple[str, ...] = Field(default=(), description="What the figures must not be used for.")
    tables: tuple[Table, ...]
    proof: Proof | None = Field(default=None, description="The last proof; null: none was made.")
    patch: str | None = Field(default=None, description="Lines for workload.toml; null: nothing is to be changed.")
    not_tested: tuple[str, ...] = Field(description="What the figures do not show, a sentence each.")
    environment: dict[str, str] = Field(description="What was measured, on what, when, and the hashes of its inputs.")

    def table(self, name: str) -> Table | None:
        return next((table for table in self.tables if table.name == name), None)


def table(
    name: str, title: str, columns: Sequence[tuple[str, str, str]], rows: Sequence[Sequence[Value]], note: str = ""
) -> Table:
    """Returns a table of `columns`, each a name, a head and a format, and of `rows` in their order."""
    heads = tuple(Column(name=key, title=head, spec=spec) for key, head, spec in columns)
    keyed = tuple(dict(zip((head.name for head in heads), row, strict=True)) for row in rows)
    return Table(name=name, title=title, columns=heads, rows=keyed, note=note)


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


def asked(objective: LatencyObjective) -> str:
    """Returns the objective in words."""
    return f"{objective.percentile} model latency ≤ {objective.model_latency_ms:g} ms at {objective.peak}"


def as_json(report: Report) -> dict[str, Any]:
    return report.model_dump(mode="json")
