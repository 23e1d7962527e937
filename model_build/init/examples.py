"""Reads a user's examples: CSV, TSV, JSON lines, or plain text with one example a line.

A missing label stays None: the original model can supply it.
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads import Row, UsageError
from workloads.files import text_lines

OTHER = "other"
"""The name of the second text of an embedding's example."""
FIELDS: Mapping[str, tuple[str, ...]] = {
    "question-answering": ("question", "context"),
    "text-ranking": ("query", "text"),
    "feature-extraction": ("text", OTHER),
}
"""The texts of an example by task; `text` and `text_pair` for all other tasks."""
TEXT_COUNTS: Mapping[str, tuple[int, ...]] = {
    "text-classification": (1, 2),
    "feature-extraction": (1, 2),
    "question-answering": (2,),
    "text-pair-scoring": (2,),
    "text-ranking": (2,),
}
"""How many texts an example of a task may have; one for all other tasks."""
LABEL_COLUMNS = ("label", "labels", "target", "answer", "answers")
SCORE_COLUMN = "score"
ROW_NUMBERS = {"", "id", "idx", "index", "guid", "uid"}
"""Names of columns that number the rows; pandas writes the first for its index."""
FIELD = re.compile(r"[a-z][a-z0-9_]{0,30}")
DELIMITERS = {".csv": ",;\t", ".tsv": "\t"}
"""The characters that may separate columns, by file ending: spreadsheets of many countries write ;."""
MAX_CHARACTERS = 1_000_000
"""Longest text that is accepted. An endpoint rejects a request of more than a few megabytes."""
Record = tuple[str, Mapping[str, Any]]
"""The place of an example, as errors name it, and its columns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExampleRow:
    """One example of the file at `where`."""

    where: str
    row: Row
    label: Any = None
    score: Any = None

    @property
    def request(self) -> Row:
        return {field: text for field, text in self.row.items() if field != OTHER}


@dataclass(frozen=True, kw_only=True, slots=True)
class Examples:
    rows: tuple[ExampleRow, ...]
    unused: tuple[str, ...] = ()
    """The columns that are neither texts nor labels."""
    label_column: str | None = None

    @property
    def labelled(self) -> bool:
        return all(each.label is not None or each.score is not None for each in self.rows)


def of_task(
    task: str, file: Path | None, *, text_columns: tuple[str, ...], label_column: str | None, labels: Sequence[str]
) -> Examples:
    """Returns the examples of a file as a task takes them, or made-up ones if there is no file.

    Without `label_column`, a column that holds only names of `labels` is the label column. Raises `UsageError`
    if the file is empty, is not UTF-8, or if its text or label columns cannot be determined.
    """
    counts, fields = TEXT_COUNTS.get(task, (1,)), FIELDS.get(task, ("text", "text_pair"))
    if file is None:
        return _made_up(fields[: counts[0]] if task != "feature-extraction" else fields)
    records = list(_records(file, fields[: max(counts)]))
    if not records:
        raise UsageError(f"--examples {file}: has no examples. Give a CSV with a header, JSON lines, or a text a line.")
    names = tuple(records[0][1])
    for name in (*text_columns, *filter(None, [label_column])):
        if name not in names:
            raise UsageError(f"--examples {file}: has no column '{name}'. Its columns: {', '.join(names)}.")
    label = label_column or _column_of_labels(file, records, text_columns, labels) or _first(LABEL_COLUMNS, names)
    score = _first((SCORE_COLUMN,), [name for name in names if name != label])
    # A CSV whose label column is called like a label begins with an example, not with a header.
    label_names = {each.casefold() for each in labels}
    has_header = file.suffix.lower() not in DELIMITERS or (label is not None and label.casefold() not in label_names)
    others = [name for name in names if name not in (label, score) and name.lower() not in ROW_NUMBERS]
    texts = text_columns or _text_columns(others, fields, counts, has_header)
    if len(texts) not in counts:
        allowed = " or ".join("one text" if count == 1 else f"{count} texts" for count in counts)
        raise UsageError(
            f"--examples {file}: the columns are {', '.join(names)[:80]}, and the task takes {allowed}. Name "
            "the column of each text with --text-column, and that of the label with --label-column. A CSV begins with "
            "a header."
        )
    keys = _request_fields(task, fields, texts)
    rows = tuple(_row(each, dict(zip(keys, texts, strict=True)), label, score) for each in records)
    _check_all_or_none_labelled(rows)
    unused = tuple(name for name in others if name not in texts)
    return Examples(rows=rows, unused=unused, label_column=label if rows[0].label is not None else None)


def _first(candidates: Sequence[str], names: Sequence[str]) -> str | None:
    lower = {name.lower(): name for name in names}
    return next((lower[each] for each in candidates if each in lower), None)


def _column_of_labels(file: Path, records: Sequence[Record], texts: Sequence[str], labels: Sequence[str]) -> str | None:
    """Returns the column that holds only label names. Raises `UsageError` if several do and no name decides."""
    known = {label.casefold() for label in labels}
    values = {
        name: {part for _, record in records for part in _labels_in(record.get(name), known)}
        for name in records[0][1]
        if name not in texts
    }
    candidates = [name for name, parts in values.items() if parts and parts <= known]
    usual = [name for name in candidates if name.lower() in LABEL_COLUMNS]
    if len(candidates) > 1 and len(usual) != 1:
        raise UsageError(
            f"--examples {file}: the columns {', '.join(candidates)} all hold the checkpoint's labels. Name one with "
            "--label-column."
        )
    return next(iter(usual or candidates), None)


def _labels_in(cell: Any, known: set[str]) -> Iterator[str]:
    """Yields the casefolded labels of a cell: one, or several in a list or between commas, semicolons or bars."""
    if cell is None:
        return
    whole = str(cell).strip().casefold()
    for part in [whole] if whole in known else cell if isinstance(cell, list) else re.split(r"[,;|]", whole):
        yield str(part).strip().casefold()


def _text_columns(
    names: Sequence[str], fields: Sequence[str], counts: Sequence[int], has_header: bool
) -> tuple[str, ...]:
    """Returns the columns that are called like the request's fields, or all if the task takes just that many texts."""
    lower = {name.lower(): name for name in names}
    for count in sorted(counts, reverse=True):
        if set(fields[:count]) <= lower.keys():
            return tuple(lower[field] for field in fields[:count])
    return tuple(names) if has_header and (len(names) == 1 or len(counts) == 1) else ()


def _request_fields(task: str, fields: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Returns the fields of a request: those of the task, `text` for one column, else the columns' own names."""
    if task in FIELDS or len(columns) == 1:
        return tuple(fields[: len(columns)])
    names = tuple(name.lower() for name in columns)
    return names if all(map(FIELD.fullmatch, names)) and len(set(names)) == len(names) else tuple(fields)


def _row(record: Record, columns: Mapping[str, str], label: str | None, score: str | None) -> ExampleRow:
    where, cells = record
    row = {field: _text(where, column, cells.get(column)) for field, column in columns.items()}
    return ExampleRow(
        where=where, row=row, label=cells.get(label) if label else None, score=cells.get(score) if score else None
    )


def _text(where: str, column: str, value: Any) -> str:
    if value is None or (isinstance(value, str) and not value.strip()):
        raise UsageError(f"{where}: {column} is empty. Remove the example, or give it a text.")
    if not isinstance(value, str):
        raise UsageError(f"{where}: {column} is {json.dumps(value)[:40]}. Write a text.")
    if len(value) > MAX_CHARACTERS:
        raise UsageError(
            f"{where}: {column} has {len(value):,} characters (limit {MAX_CHARACTERS:,}). Cut it, or remove it."
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{where}: {column} contains half of a character, \\u{ord(value[error.start]):04x}, which UTF-8 cannot "
            "store. Remove it: it is often left where a text with emoji was cut."
        ) from error
    return value


def _check_all_or_none_labelled(rows: Sequence[ExampleRow]) -> None:
    labelled = [each.label is not None or each.score is not None for each in rows]
    if any(labelled) and not all(labelled):
        odd = rows[labelled.index(not labelled[0])]
        has, others = ("no label", "one") if labelled[0] else ("a label", "none")
        raise UsageError(f"{odd.where}: has {has}, and {rows[0].where} has {others}. Label all examples, or none.")


def _records(file: Path, fields: Sequence[str]) -> Iterator[Record]:
    """Yields each example. `fields` are the texts of a line of plain text."""
    if not file.is_file():
        raise UsageError(f"--examples: there is no file {file}.")
    lines = text_lines(file)
    kind = file.suffix.lower()
    if kind in DELIMITERS:
        yield from _table(file, lines, max(DELIMITERS[kind], key=lines[0].count))
        return
    is_json = kind in (".jsonl", ".json", ".ndjson")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f"{file}:{number}"
            yield where, _json(where, line) if is_json else _plain(where, line, fields)


def _table(file: Path, lines: Sequence[str], delimiter: str) -> Iterator[Record]:
    rows = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    csv.field_size_limit(max(csv.field_size_limit(), 2 * MAX_CHARACTERS))
    line = 0
    try:
        names, line = [name.strip() for name in next(rows, [])], 1
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"{file}:1: has two columns '{twice[0]}'. Name each once.")
        for row in filter(None, rows):
            line = rows.line_num
            where = f"{file}:{line}"
            if len(row) != len(names):
                raise UsageError(f"{where}: has {len(row)} columns, but the header has {len(names)}.")
            yield where, {name: cell if cell.strip() else None for name, cell in zip(names, row, strict=True)}
    except csv.Error as error:
        raise UsageError(
            f"{file}:{line + 1}: is not CSV: {error}. Close each quotation mark, and end each line with a line feed."
        ) from error


def _json(where: str, line: str) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise UsageError(
            f'{where}: is not valid JSON: {error}. Write one object a line, as {{"text": "…"}}.'
        ) from error
    if isinstance(value, str):
        value = {"text": value}
    if not isinstance(value, dict):
        raise UsageError(f"{where}: is {type(value).__name__} in JSON. Write one object a line.")
    return value


def _plain(where: str, line: str, fields: Sequence[str]) -> Mapping[str, Any]:
    """Reads the texts and then the label, separated by tabs."""
    parts = line.split("\t")
    names = (*(fields if len(parts) >= len(fields) else fields[:1]), "label")
    if len(parts) > len(names):
        allowed = f"Allowed: at most {len(names) - 1}, between {', '.join(names)}."
        raise UsageError(f"{where}: has {len(parts) - 1} tabs. {allowed}")
    return dict(zip(names, parts, strict=False))


MADE_UP = Path(__file__).with_name("made_up.jsonl")
"""Sentences in English with a question each, for a workload without examples."""


def _made_up(fields: Sequence[str]) -> Examples:
    order = ("question", "text") if fields[0] in ("question", "query") else ("text", "question")
    lines = [json.loads(line) for line in MADE_UP.read_text("utf-8").splitlines()]
    rows = [dict(zip(fields, (line[key] for key in order), strict=False)) for line in lines]
    return Examples(rows=tuple(ExampleRow(where=f"made up, {i}", row=row) for i, row in enumerate(rows, 1)))
