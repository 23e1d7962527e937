"""A report as GitHub's Markdown, for the body of a pull request. Pure."""

import re
from collections.abc import Iterable, Iterator

from inference_recommender.report.document import Report, Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def markdown(report: Report) -> str:
    """Returns the whole text, with a newline at its end."""
    return "\n\n".join(_blocks(report)) + "\n"


def _blocks(report: Report) -> Iterator[str]:
    yield f"**{_text(report.decision)}**"
    yield f"Objective: {_text(report.objective)}."
    if report.highlights:
        yield _bullets(f"{each.label}: {each.value}" for each in report.highlights)
    for caution in report.cautions:
        yield f"> {_text(caution)}"
    for table in report.tables:
        if not table.detail:
            yield f"### {_text(table.title)}"
            yield from _table(table)
    if report.notes:
        yield _bullets(report.notes)
    if report.patch:
        yield f"### For workload.toml\n\n```toml\n{report.patch.rstrip()}\n```"
    if report.kind in ("run", "experiment") and report.proof is None:
        yield "### Proof\n\nNone was made."
    if report.not_tested:
        yield "### Not tested"
        yield _bullets(report.not_tested)
    for table in report.tables:
        if table.detail:
            yield _folded(table.title, "\n\n".join(_table(table)))
    facts = "\n".join(f"- {_text(name)}: {_code(value)}" for name, value in report.environment.items())
    yield _folded("Provenance", facts)


def _table(table: Table) -> Iterator[str]:
    lines = [
        [_text(column.title) for column in table.columns],
        ["--:" if column.spec else ":--" for column in table.columns],
        *([_text(cell) for cell in table.cells(row)] for row in table.rows),
    ]
    if table.rows:
        yield "\n".join(f"| {' | '.join(line)} |" for line in lines)
    if table.note:
        yield _text(table.note)


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_text(line)}" for line in lines)


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{_text(title)}</summary>\n\n{body}\n\n</details>"


def _text(text: str) -> str:
    """Escapes Markdown's characters and joins lines. Names such as max_batch_size and `code` stay readable."""
    parts = re.split(r"(`[^`|<]+`)", " ".join(text.split()))
    parts[::2] = [re.sub(r"(?<=\w)\\_(?=\w)", "_", _SPECIAL.sub(r"\\\1", part)) for part in parts[::2]]
    return "".join(parts)


def _code(text: str) -> str:
    """Returns text in a code span, whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{' '.join(text.split())}{pad}{fence}"
