"""A report as terminal text: title, main tables, a line per caveat, decision."""

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from inference_recommender.output import LOG_WIDTH, stdout_console, tell
from inference_recommender.report.document import Report, Table
from workloads.document import Document
from workloads.program import printable

LONGEST_WORD = 24
"""A longer word may be split. Shorter ones and figures are not."""
EDGES = 2


def print_result(report: Report, *, json: bool, document: Document | None = None, log_width: int = LOG_WIDTH) -> None:
    """Prints a command's report to stdout, or with --json one document: `document`, by default the report itself."""
    if json:
        print((document or report).model_dump_json(indent=2))
    else:
        show(report, stdout_console(log_width))


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
    """Prints a table. If it is too wide, its columns move together, or become rows."""
    lines = [[column.title for column in table.columns], *(table.cells(row) for row in table.rows)]
    columns = _columns([[printable(cell) for cell in line] for line in lines])
    right = [bool(column.spec) for column in table.columns]
    gap = 2 if _least_width(columns, 2) <= console.width else 1
    turned = _columns(columns)
    if _least_width(columns, gap) > console.width >= _least_width(turned, 2):
        columns, right, gap = turned, [False] + [True] * (len(turned) - 1), 2
    rich = RichTable(
        title=Text(printable(table.title)) if titled else None,
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, gap - 1, 0, 0),  # the box has a blank, too
        pad_edge=False,
    )
    for cells, to_the_right, width in zip(columns, right, _widths(columns, gap, console.width), strict=True):
        rich.add_column(Text(cells[0]), justify="right" if to_the_right else "left", width=width)
    for row in _columns(columns)[1:]:
        rich.add_row(*map(Text, row))
    console.print(rich)
    if table.note:
        tell(console, table.note)


def _columns(lines: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Returns the columns of lines, or the lines of columns."""
    return list(zip(*lines, strict=True))


def _widths(columns: Sequence[Sequence[str]], gap: int, available: int) -> list[int]:
    """Returns the columns' widths. The widest columns shrink first, down to their longest words."""
    widths = [max(map(cell_len, cells)) for cells in columns]
    slack = [width - _longest_word(cells) for width, cells in zip(widths, columns, strict=True)]
    excess = sum(widths) + gap * (len(columns) - 1) + EDGES - available
    for _ in range(min(excess, sum(slack))):
        place = max((place for place in range(len(slack)) if slack[place]), key=widths.__getitem__)
        widths[place] -= 1
        slack[place] -= 1
    return widths


def _least_width(columns: Sequence[Sequence[str]], gap: int) -> int:
    """Returns the least width of a table, with whole words."""
    return sum(map(_longest_word, columns)) + gap * (len(columns) - 1) + EDGES


def _longest_word(texts: Sequence[str]) -> int:
    return min(max(cell_len(word) for text in texts for word in text.split() or [""]), LONGEST_WORD)
