"""A report as terminal text: title, main tables, a line per caveat, decision."""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from inference_recommender.output import tell
from inference_recommender.report.document import Report, Table
from workloads.program import printable


def show(report: Report, console: Console) -> None:
    """Prints the report at the console's width. Only the page and Markdown have the tables that are details."""
    tell(console, f"{report.workload or report.name}: {report.objective}", "bold")
    for number, table in enumerate(each for each in report.tables if each.rows and not each.detail):
        _show_table(table, console, titled=number > 0)
    for line in _lines(report):
        tell(console, line)


def _lines(report: Report) -> Iterator[str]:
    yield from report.notes
    yield from (f"Caution: {each}" for each in report.cautions)
    if report.patch:
        yield f"For workload.toml:\n{report.patch.rstrip()}"
    yield report.decision


def _show_table(table: Table, console: Console, *, titled: bool) -> None:
    rich = RichTable(
        title=Text(printable(table.title)) if titled else None,
        title_justify="left",
        box=SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    for column in table.columns:
        rich.add_column(Text(printable(column.title)), justify="right" if column.spec else "left")
    for row in table.rows:
        rich.add_row(*(Text(printable(cell)) for cell in table.cells(row)))
    console.print(rich)
    if table.note:
        tell(console, table.note)
