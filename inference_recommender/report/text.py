"""A report as terminal text: title, main tables, a line per caveat, decision."""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from inference_recommender.output import tell
from inference_recommender.report.document import Report, Table
from workloads.program import printable

LONGEST_WORD = 24
"""Longer words may be split in a narrow terminal; shorter ones and figures are not."""


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
    rows = [[printable(cell) for cell in table.cells(row)] for row in table.rows]
    for column, *cells in zip(table.columns, *rows, strict=True):
        title = printable(column.title)
        longest = max(len(word) for text in (title, *cells) for word in text.split() or [""])
        justify: JustifyMethod = "right" if column.spec else "left"
        rich.add_column(Text(title), justify=justify, min_width=min(longest, LONGEST_WORD))
    for cells in rows:
        rich.add_row(*map(Text, cells))
    console.print(rich)
    if table.note:
        tell(console, table.note)
