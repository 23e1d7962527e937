"""A report as GitHub's Markdown, for the body of a pull request: the decision first, then the table, the proof, and
what was not tested. Pure.
"""

import re
from collections.abc import Iterator

from inference_recommender.report.document import Report, Table

FOLDED = frozenset({"generator", "configuration", "client-latency", "frontier", "worst-day", "assumptions", "left-out"})
"""Tables that a reader opens when the others leave a question."""
PROVABLE = frozenset({"run", "capacity", "experiment"})
"""Kinds of reports that say it where no proof was made."""
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def markdown(report: Report) -> str:
    """Returns the whole text, with a newline at its end."""
    return "\n\n".join(_blocks(report)) + "\n"


def _blocks(report: Report) -> Iterator[str]:
    yield f"**{_text(report.decision)}**"
    yield f"Asked: {_text(report.asked)}."
    for caution in report.cautions:
        yield f"> {_text(caution)}"
    for table in report.tables:
        if table.name not in FOLDED:
            yield from _table(table)
    if report.patch:
        yield f"### For workload.toml\n\n```toml\n{report.patch.rstrip()}\n```"
    if report.kind in PROVABLE and report.proof is None and report.table("proof") is None:
        yield "### Proof\n\nNone was made."
    if report.not_tested:
        yield "### Not tested"
        yield "\n".join(f"- {_text(each)}" for each in report.not_tested)
    for table in report.tables:
        if table.name in FOLDED:
            yield _folded(table.title, "\n\n".join(list(_table(table))[1:]))
    facts = "\n".join(f"- {_text(name)}: {_code(value)}" for name, value in report.environment.items())
    yield _folded("Where this is from", facts)


def _table(table: Table) -> Iterator[str]:
    yield f"### {_text(table.title)}"
    lines = [
        [_text(column.title) for column in table.columns],
        ["--:" if column.spec else ":--" for column in table.columns],
        *([_text(cell) for cell in table.cells(row)] for row in table.rows),
    ]
    yield "\n".join(f"| {' | '.join(line)} |" for line in lines)
    if table.note:
        yield _text(table.note)


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{_text(title)}</summary>\n\n{body}\n\n</details>"


def _text(text: str) -> str:
    """Returns text in which nothing is read as markup, on one line; names such as max_batch_size stay as they are."""
    return re.sub(r"(?<=\w)\\_(?=\w)", "_", _SPECIAL.sub(r"\\\1", " ".join(text.split())))


def _code(text: str) -> str:
    """Returns text in a code span, whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{' '.join(text.split())}{pad}{fence}"
