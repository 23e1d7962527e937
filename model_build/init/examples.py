"""Reads a user's examples: CSV, TSV, JSON lines, or plain text with one example a line.

In: a file, how many texts the task takes, and the checkpoint's label names. Out: `Examples`, each with its line.
A missing label stays None: the original model can supply it.
"""

import csv
import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workloads import Row, UsageError
from workloads.files import text_lines

PAIRS = (
    ("question", "context"),
    ("premise", "hypothesis"),
    ("query", "passage"),
    ("query", "document"),
    ("query", "text"),
    ("sentence1", "sentence2"),
    ("text1", "text2"),
    ("question1", "question2"),
    ("text", "text_pair"),
)
"""Names of two columns that belong together, as data sets call them."""
TEXTS = ("text", "sentence", "query", "review", "input", "source", "document", "content", "article", "message", "body")
LABELS = (
    *("label", "labels", "target", "answer", "answers", "summary", "translation", "corrected", "output", "expected"),
    *("class", "category", "intent", "sentiment", "tags", "entities", "relation"),
)
SCORES = ("score", "similarity", "relevance", "rating")
OTHER = "other"
"""The name of the second text of an embedding's example."""
TEXTS_OF_TASKS: dict[str, tuple[int, ...]] = {
    "text-classification": (1, 2),
    "feature-extraction": (1, 2),
    "question-answering": (2,),
    "text-pair-scoring": (2,),
    "text-ranking": (2,),
}
"""How many texts an example of a task has; one where nothing is said."""
FIELDS_OF_TASKS: dict[str, tuple[str, ...]] = {
    "question-answering": ("question", "context"),
    "text-ranking": ("query", "text"),
    "feature-extraction": ("text", OTHER),
}
"""The names of the two texts of an example, whatever their columns are called."""
IGNORED = {"", "id", "idx", "index", "guid", "uid"}
"""Names of columns that number the rows; the first is what pandas writes for its index."""
KNOWN = {*TEXTS, *LABELS, *SCORES, *IGNORED, *(name for pair in PAIRS for name in pair)}
DELIMITERS = {".csv": ",;\t", ".tsv": "\t"}
"""The characters that may be between the columns, by the ending of a file: many countries' spreadsheets write ;."""
MOST_CHARACTERS = 1_000_000
"""Longest text that is taken. An endpoint refuses a request of more than a few megabytes."""
JSON = {".jsonl", ".json", ".ndjson"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """An example as it was given. `where` is its file and line, as an error names it."""

    where: str
    row: Row
    label: Any = None
    score: Any = None

    @property
    def other(self) -> str | None:
        """The second text of an embedding's example, which is compared with the first and never asked."""
        return self.row.get(OTHER)

    @property
    def asked(self) -> Row:
        """The request."""
        return {field: text for field, text in self.row.items() if field != OTHER}


@dataclass(frozen=True, kw_only=True, slots=True)
class Examples:
    """All examples of a file; `fields` are the request's, in the order of the model's segments."""

    fields: tuple[str, ...]
    given: tuple[Given, ...]
    unused: tuple[str, ...] = ()
    """The columns that are neither texts nor labels."""
    label_column: str | None = None

    @property
    def labelled(self) -> bool:
        return all(each.label is not None or each.score is not None for each in self.given)


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """The columns that the command line names; empty and None leave it to their names."""

    texts: tuple[str, ...] = ()
    label: str | None = None


def of_task(task: str, file: Path | None, named: Columns, labels: Sequence[str] = ()) -> Examples:
    """Returns the examples of a file as a task takes them, or made-up ones if there is no file.

    A column that holds only names of `labels` is the label column, unless `named` names another.
    """
    texts, fields = TEXTS_OF_TASKS.get(task, (1,)), FIELDS_OF_TASKS.get(task)
    return made_up(texts[0], fields) if file is None else read(file, texts, named, fields, labels)


def read(
    file: Path, texts: Sequence[int], named: Columns, fields: tuple[str, ...] | None, labels: Sequence[str]
) -> Examples:
    """Reads a file whose examples have as many texts as one of `texts`; `fields` names them where the task does.

    Raises `UsageError` if the file is empty, is not UTF-8, or if its text or label columns cannot be determined.
    """
    records = list(_records(file, max(texts)))
    if not records:
        raise UsageError(f"--examples {file}: has no examples. Give a CSV with a header, JSON lines, or a text a line.")
    _, first = records[0]
    if named.label is None:
        named = replace(named, label=_column_of_labels(file, records, named, labels))
    columns, label, score = _columns(file, tuple(first), texts, named)
    names = fields if fields and len(fields) == len(columns) else _field_names(columns)
    given = tuple(
        _given(where, record, dict(zip(names, columns, strict=True)), label, score) for where, record in records
    )
    with_label = [each.label is not None or each.score is not None for each in given]
    if any(with_label) and not all(with_label):
        odd = given[with_label.index(not with_label[0])]
        has, others = ("a label", "none") if with_label.index(True) else ("no label", "one")
        raise UsageError(f"{odd.where}: has {has}, and {given[0].where} has {others}. Label all examples, or none.")
    used = {*columns, label, score}
    unused = tuple(name for name in first if name not in used and name.lower() not in IGNORED)
    return Examples(fields=names, given=given, unused=unused, label_column=label if all(with_label) else None)


def _column_of_labels(
    file: Path, records: Sequence[tuple[str, Mapping[str, Any]]], named: Columns, labels: Sequence[str]
) -> str | None:
    """Returns the column that holds only label names. Raises `UsageError` if several do and no name decides."""
    known = {label.casefold() for label in labels}
    values = {
        name: {part for _, record in records for part in _parts(record.get(name), known)}
        for name in records[0][1]
        if name not in named.texts
    }
    columns = [name for name, found in values.items() if found and found <= known]
    usual = [name for name in columns if name.lower() in LABELS]
    if len(columns) > 1 and len(usual) != 1:
        raise UsageError(
            f"--examples {file}: the columns {', '.join(columns)} all hold the checkpoint's labels. Name one with "
            "--label-column."
        )
    return next(iter(usual or columns), None)


def _parts(cell: Any, known: Container[str]) -> Iterator[str]:
    """Yields the casefolded labels of a cell: one, or several in a list or between commas, semicolons or bars."""
    if cell is None:
        return
    whole = str(cell).strip().casefold()
    for part in [whole] if whole in known else cell if isinstance(cell, list) else re.split(r"[,;|]", whole):
        yield str(part).strip().casefold()


def _records(file: Path, texts: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields each example's place and its columns by name."""
    if not file.is_file():
        raise UsageError(f"--examples: there is no file {file}.")
    lines = text_lines(file)
    kind = file.suffix.lower()
    if kind in DELIMITERS:
        yield from _table(file, lines, max(DELIMITERS[kind], key=lines[0].count))
    elif kind in JSON:
        yield from _json_lines(file, lines)
    else:
        yield from _plain(file, lines, texts)


def _table(file: Path, lines: Sequence[str], delimiter: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = csv.DictReader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    csv.field_size_limit(max(csv.field_size_limit(), 2 * MOST_CHARACTERS))
    try:
        names = rows.fieldnames or ()
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"{file}:1: has two columns '{twice[0]}'. Name each once.")
        for row in rows:
            where = f"{file}:{rows.line_num}"
            if None in row or None in row.values():
                got = sum(value is not None for key, value in row.items() if key is not None) + len(row.get(None) or ())
                raise UsageError(f"{where}: has {got} columns, but the header has {len(rows.fieldnames or ())}.")
            yield where, {key.strip(): value if value.strip() else None for key, value in row.items()}
    except csv.Error as error:
        raise UsageError(
            f"{file}:{rows.line_num + 1}: is not CSV: {error}. Close each quotation mark, and end each line with a "
            "line feed."
        ) from error


def _json_lines(file: Path, lines: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise UsageError(
                f'{file}:{number}: is not valid JSON: {error}. Write one object a line, as {{"text": "…"}}.'
            ) from error
        if isinstance(value, str):
            value = {"text": value}
        if not isinstance(value, dict):
            raise UsageError(f"{file}:{number}: is {type(value).__name__} in JSON. Write one object a line.")
        yield f"{file}:{number}", value


def _plain(file: Path, lines: Sequence[str], texts: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A line is a text; with tabs, the texts and then the label."""
    pair = ("text",) if texts == 1 else ("text", "text_pair")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        parts = line.split("\t")
        names = (*(pair if len(parts) >= len(pair) else pair[:1]), "label")
        if len(parts) > len(names):
            raise UsageError(f"{file}:{number}: has {len(parts) - 1} tabs. Allowed: {len(names) - 1} at most, between "
                             f"{', '.join(names)}.")  # fmt: skip
        yield f"{file}:{number}", dict(zip(names, parts, strict=False))


def _columns(
    file: Path, names: tuple[str, ...], texts: Sequence[int], named: Columns
) -> tuple[tuple[str, ...], str | None, str | None]:
    """Returns the columns of the texts, of the label and of the score, by what their names say."""
    if missing := [name for name in (*named.texts, *filter(None, [named.label])) if name not in names]:
        raise UsageError(f"--examples {file}: has no column '{missing[0]}'. Its columns: {', '.join(names)}.")
    lower = {name.lower(): name for name in names}
    if file.suffix.lower() in DELIMITERS and not (named.texts or KNOWN & lower.keys()):
        raise UsageError(
            f"--examples {file}: the names in its first line are none that are known: {_shortened(', '.join(names))}. "
            "Put a header such as text,label there, or if it is one, name its columns with --text-column and "
            "--label-column."
        )
    label = named.label or next((lower[name] for name in LABELS if name in lower), None)
    score = next((lower[name] for name in SCORES if name in lower and lower[name] != label), None)
    rest = [name for name in names if name not in (label, score) and name.lower() not in IGNORED]
    chosen = named.texts or _chosen(rest, lower, texts)
    if len(chosen) not in texts:
        wanted = " or ".join("one text" if count == 1 else f"{count} texts" for count in texts)
        raise UsageError(
            f"--examples {file}: has the columns {', '.join(names)}, and the task takes {wanted}. Name the columns of "
            "the texts, each with --text-column, and of the label with --label-column; plain text has tabs between."
        )
    return tuple(chosen), label, score


def _chosen(rest: Sequence[str], lower: Mapping[str, str], texts: Sequence[int]) -> Sequence[str]:
    if 2 in texts and (pair := next((pair for pair in PAIRS if set(pair) <= lower.keys()), None)):
        return [lower[name] for name in pair]
    if len(rest) in texts and (len(rest) == 1 or len(texts) == 1):
        return rest
    known = [lower[name] for name in TEXTS if name in lower]
    return known if len(known) == 1 and 1 in texts else ()


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}…"


def _field_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Returns request fields for columns: `text` for one alone, else the columns' names as a key may be spelt."""
    if len(columns) == 1:
        return ("text",)
    names = [
        "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name.lower()) for name in columns
    ]
    sound = all(name[:1].isalpha() and len(name) <= 31 for name in names) and len(set(names)) == len(names)
    return tuple(names) if sound else ("text", "text_pair")


def _given(
    where: str, record: Mapping[str, Any], columns: Mapping[str, str], label: str | None, score: str | None
) -> Given:
    row = {}
    for field, column in columns.items():
        text = record.get(column)
        if not isinstance(text, str) or not text.strip():
            what = (
                "is empty" if text is None or isinstance(text, str) else f"is {json.dumps(text)[:40]}, which is no text"
            )
            raise UsageError(f"{where}: {column} {what}. Remove the example, or give it a text.")
        _check_text(where, column, text)
        row[field] = text
    return Given(
        where=where, row=row, label=record.get(label) if label else None, score=record.get(score) if score else None
    )


def _check_text(where: str, column: str, text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"{where}: {column} has {len(text):,} characters, at most {MOST_CHARACTERS:,} are taken. Cut it, or remove "
            "the example."
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{where}: {column} has half of a character, \\u{ord(text[error.start]):04x}, which is no text in UTF-8. "
            "Remove it: it is often left where a text with emoji was cut."
        ) from error


MADE_UP = (
    ("The parcel arrived two days late, but everything was in one piece.", "When did the parcel arrive?"),
    ("Our shop in Berlin opens at nine and closes at seven on weekdays.", "When does the shop open?"),
    ("This lamp is too bright for a bedroom and gets very hot.", "What gets very hot?"),
    ("You can return shoes within thirty days if they were not worn.", "How long can shoes be returned?"),
    ("Great value for the price.", "What is great?"),
    ("The museum was founded in 1887 by Clara Weber, a collector from Vienna.", "Who founded the museum?"),
    ("Please send the invoice to our office in Lyon instead of Paris.", "Where should the invoice be sent?"),
    ("It broke after a week.", "When did it break?"),
)
"""Sentences in English with a question each: requests for a workload whose user gave no examples."""


def made_up(texts: int, fields: tuple[str, ...] | None) -> Examples:
    """Returns examples of one or two texts that nobody ever asked, without labels."""
    names = fields or (("text",) if texts == 1 else ("text", "text_pair"))
    first_is_question = names[0] in ("question", "query")
    rows = [
        dict(zip(names, (question, sentence) if first_is_question else (sentence, question), strict=False))
        for sentence, question in MADE_UP
    ]
    return Examples(fields=names, given=tuple(Given(where=f"made up, {i}", row=row) for i, row in enumerate(rows, 1)))
