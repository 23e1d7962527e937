"""Writes a workload's folder: first into a scratch folder, which then moves into its place in one step.

The targets of a checkpoint are found by planning a build of each. workload.toml states why a target is missing.
"""

import json
import math
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model_build.checkpoint import read, sentence_transformers
from model_build.checkpoint.families import family_of
from model_build.checkpoint.text2text import read_text2text
from model_build.init import examples, labels, lengths, source, workload_toml
from model_build.init.checkpoint_facts import CheckpointFacts, find
from model_build.init.examples import OTHER, ExampleRow, Examples
from model_build.init.lengths import Lengths, sequence_lengths
from model_build.init.model_table import ModelTable, model_table
from model_build.init.original import ask_original, reached
from model_build.init.workload_toml import TARGETS
from model_build.library_log import libraries_logged
from model_build.plan import plan
from model_build.progress import Progress
from workloads import Example, Model, ProjectError, TextToText, UsageError, WorkloadFolder, metrics_of
from workloads.document import Document
from workloads.errors import InvalidDocument
from workloads.workload import AGREEMENT, name_problem

MAX_ROWS = 1000
"""Rows of evaluation.jsonl and of payloads.jsonl. Longer files are thinned evenly."""
MAX_GENERATED_ROWS = 200
"""Rows of a text2text model's evaluation: `generate` is slow."""
MARGIN = 0.05
"""Distance of a default minimum below the original's figure."""
SIGNED = {"pearson", "spearman", "score_correlation", "cosine_spearman", "cosine_to_original"}
"""Metrics from -1 to 1; others are from 0 to 1."""
MIN_AGREEMENT = 0.98
"""Default agreement: a compiled model may round one answer in fifty differently."""
AGREEING = {
    "text2text-generation",
    "text-classification",
    "text-pair-scoring",
    "question-answering",
    "token-classification",
}
"""Tasks whose answer is a text or a label, which another model gives or does not; numbers agree by a correlation."""


class _ModelTable(Document):
    """The [model] of a workload.toml that is not written yet."""

    model: Model


@dataclass(frozen=True, kw_only=True, slots=True)
class InitRequest:
    """The options of the command line. Empty and None leave it to the files."""

    name: str
    source: str
    examples: Path | None
    text_column: Sequence[str]
    label_column: str | None
    labels: Sequence[str]
    task: str | None
    max_input_tokens: int | None
    target: Sequence[str]
    overwrite: bool
    min: Sequence[tuple[str, float]]
    percentile: str
    latency_ms: float
    peak_invocations_per_minute: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NewWorkload:
    """The facts of the written folder: the document of --json."""

    workload: str
    folder: str
    stack: str
    architecture: str
    task: str
    max_input_tokens: int
    checkpoint_token_limit: int | None
    longer_requests: str
    lengths: str
    evaluation_rows: int
    payloads: int
    labelled_by: str
    label_column: str | None
    minimums: Mapping[str, float]
    targets: tuple[str, ...]
    left_out: Mapping[str, str]
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Draft:
    """Everything that is known before the original model runs. `folder` has the checkpoint as a build reads it."""

    facts: CheckpointFacts
    folder: Path
    table: ModelTable
    counted: Lengths
    rows: tuple[ExampleRow, ...]
    """The examples that the model accepts."""
    labelled: bool
    label_column: str | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Evaluation:
    """The rows, and the original's figures on them; `reached` is empty if it labelled the rows itself."""

    rows: int
    table: ModelTable
    minimums: Mapping[str, float]
    reached: Mapping[str, float]


def write(request: InitRequest, root: Path, progress: Progress) -> NewWorkload:
    """Raises `UsageError` for errors of the files or the command line, and `Unavailable` for what cannot be fetched.

    Until everything is written and planned, nothing lies below workloads/.
    """
    folder = root / "workloads" / request.name
    if problem := name_problem(request.name):
        raise UsageError(f"NAME: {problem}")
    if folder.exists() and not request.overwrite:
        raise UsageError(f"{folder} exists and was not changed. Give another name, or add --overwrite.")
    (root / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".init-", dir=root / "build") as scratch_root:
        scratch = Path(scratch_root) / request.name
        scratch.mkdir()
        try:
            written = _write(request, root, scratch, progress)
        except ProjectError as error:
            error.args = (_with_original_paths(str(error), request, scratch),)
            raise
        _move(scratch, folder)
    return written


def _with_original_paths(message: str, request: InitRequest, scratch: Path) -> str:
    """Returns a message with the files of the scratch folder named as the user knows them."""
    path = Path(request.source).expanduser()
    message = message.replace(str(scratch / "checkpoint"), str(path.resolve() if path.is_dir() else request.source))
    return message.replace(str(scratch), f"workloads/{request.name}")


def _move(scratch: Path, folder: Path) -> None:
    """Moves the files into their place; in an existing folder, only those that were written."""
    if not folder.exists():
        scratch.rename(folder)
        return
    for each in sorted(scratch.iterdir(), key=lambda each: each.name == "workload.toml"):
        place = folder / each.name
        if place.is_dir():
            shutil.rmtree(place)
        each.replace(place)


def _write(request: InitRequest, root: Path, scratch: Path, progress: Progress) -> NewWorkload:
    progress("Reading the checkpoint")
    draft = _draft(request, root, scratch)
    evaluation = _evaluation(request, draft, scratch, progress)
    payloads = [draft.rows[index].request for index in _spread(len(draft.rows), MAX_ROWS)]
    _write_lines(scratch / "payloads.jsonl", payloads)
    progress("Planning a build for each target")
    targets, left_out = _plannable(_values(request, draft, evaluation), request.target, scratch, root)
    return NewWorkload(
        workload=request.name,
        folder=f"workloads/{request.name}",
        stack=WorkloadFolder(scratch).workload.stack_name,
        architecture=draft.facts.architecture,
        task=draft.facts.task,
        max_input_tokens=evaluation.table.max_input_tokens,
        checkpoint_token_limit=draft.facts.token_limit,
        longer_requests=evaluation.table.longer_requests_with_key,
        lengths=draft.counted.summary,
        evaluation_rows=evaluation.rows,
        payloads=len(payloads),
        labelled_by="examples" if draft.labelled else "original",
        label_column=draft.label_column,
        minimums=evaluation.minimums,
        targets=targets,
        left_out=left_out,
        warnings=(*draft.warnings, *_gates_that_cannot_fail(evaluation)),
    )


def _gates_that_cannot_fail(evaluation: _Evaluation) -> Iterator[str]:
    for metric, least in evaluation.minimums.items():
        if least <= (-1 if metric in SIGNED else 0):
            figure = evaluation.reached.get(metric)
            now = "" if figure is None else f" The checkpoint reaches {figure:.4f}."
            yield f"{metric} is at least {least:g}, so this gate cannot fail.{now} --min {metric}=VALUE sets another."


def _draft(request: InitRequest, root: Path, scratch: Path) -> _Draft:
    fetched = source.fetch(request.source, root / "build" / "checkpoints")
    folder = fetched.folder
    facts = find(folder, request.task, request.labels)
    # An architecture that no build reads is refused before anything that depends on it.
    if facts.task == "text2text-generation":
        read_text2text(folder)
    else:
        family_of(facts.config, folder / "config.json")
    if copied := fetched.copied or not source.names_its_labels(facts):
        source.copy(folder, scratch / "checkpoint", facts)
        folder = scratch / "checkpoint"
    limit, positions = request.max_input_tokens, facts.positions
    if limit is not None and (limit < 1 or (positions is not None and limit > positions)):
        allowed = "1 or more" if positions is None else f"1 to {positions}, the checkpoint's positions"
        raise UsageError(f"--max-input-tokens: got {limit}. Allowed: {allowed}.")
    label_names = () if facts.task == "token-classification" else facts.labels
    columns = examples.Columns(texts=tuple(request.text_column), label=request.label_column)
    given = examples.of_task(facts.task, request.examples, columns, label_names)
    counts = lengths.count(folder / "tokenizer.json", [tuple(row.request.values()) for row in given.rows])
    counted = Lengths(counts=tuple(sorted(counts)))
    checkpoint = source.COPY if copied else fetched.origin
    table = model_table(facts, tuple(given.rows[0].request), counted, checkpoint, fetched.origin, folder, limit)
    rows = tuple(row for row, count in zip(given.rows, counts, strict=True) if table.takes(count))
    if not rows:
        raise UsageError(
            f"--examples {request.examples}: all are longer than max_input_tokens = {table.max_input_tokens}. Give "
            "shorter examples."
        )
    return _Draft(
        facts=facts,
        folder=folder,
        table=table,
        counted=counted,
        rows=rows,
        labelled=given.labelled,
        label_column=given.label_column,
        warnings=tuple(_warnings(request, facts, folder, given, len(counts) - len(rows), table)),
    )


def _warnings(
    request: InitRequest, facts: CheckpointFacts, folder: Path, given: Examples, left_out: int, table: ModelTable
) -> Iterator[str]:
    if request.examples is None:
        yield (
            "--examples: none given, so evaluation.jsonl and payloads.jsonl have a few made-up sentences in English. "
            "Replace them with real requests before you rely on a figure."
        )
    if given.unused:
        yield f"--examples: not used: {', '.join(given.unused)}. --text-column and --label-column name other columns."
    if left_out:
        yield f"{left_out} examples are longer than max_input_tokens = {table.max_input_tokens} and were left out."
    yield from sentence_transformers.done_before(folder)
    if facts.labels and not facts.labels_are_named:
        yield f"config.json has no names for its labels: answers say {facts.labels[0]} and so on. --labels names them."


def _evaluation(request: InitRequest, draft: _Draft, scratch: Path, progress: Progress) -> _Evaluation:
    """Runs the original model on the rows of the evaluation, and writes them with their labels."""
    model = _ModelTable.from_table(Path("workload.toml"), {"model": draft.table.keys}).model
    limit = MAX_GENERATED_ROWS if isinstance(model, TextToText) else MAX_ROWS
    rows = [draft.rows[index] for index in _spread(len(draft.rows), limit)]
    keys = [_keys(draft.facts, row) for row in rows] if draft.labelled else []
    with libraries_logged(scratch.parent / "libraries.log"):
        checkpoint = read(draft.folder, draft.folder, model)
        originals = ask_original(checkpoint, model, [Example(row=row.request, label="") for row in rows], progress)
    table = draft.table
    if isinstance(model, TextToText):
        label_tokens = lengths.longest(draft.folder / "tokenizer.json", [str(each["label"]) for each in keys])
        table = table.with_answers(originals.longest_answer, label_tokens)
    agrees = not draft.labelled and draft.facts.task in AGREEING and draft.facts.problem_type != "regression"
    names = (AGREEMENT,) if agrees else metrics_of(model)
    if odd := sorted(set(dict(request.min)) - set(names)):
        raise UsageError(f"--min: '{odd[0]}' is not measured on these examples. Allowed: {', '.join(names)}.")
    lines = [{**row.request, **each} for row, each in zip(rows, keys or originals.keys, strict=True)]
    _write_lines(scratch / "evaluation.jsonl", lines)
    if agrees:
        minimums = {AGREEMENT: MIN_AGREEMENT, **dict(request.min)}
        return _Evaluation(rows=len(lines), table=table, minimums=minimums, reached={})
    provisional = _Evaluation(rows=len(lines), table=table, minimums=dict.fromkeys(names, -1.0), reached={})
    values = _values(request, draft, provisional)
    (scratch / "workload.toml").write_text(workload_toml.text(values), "utf-8")
    figures = reached(names, _read_back(scratch, rows), originals.answers)
    minimums = {**{name: _below(figure) for name, figure in figures.items()}, **dict(request.min)}
    return replace(provisional, minimums=minimums, reached=figures)


def _read_back(scratch: Path, rows: Sequence[ExampleRow]) -> list[Example]:
    """Returns the evaluation as a build reads it. Raises `InvalidDocument` for a label at the user's own line."""
    try:
        return WorkloadFolder(scratch).evaluation()
    except InvalidDocument as error:
        number = error.file.name.rpartition(":")[2]
        if not number.isdecimal():
            raise
        raise InvalidDocument(Path(rows[int(number) - 1].where), error.problems) from None


def _below(figure: float) -> float:
    """Returns a minimum of two decimals below the original's figure; never below 0 for a share."""
    least = math.floor((figure - MARGIN) * 100) / 100
    return max(least, 0.0 if figure >= 0 else -1.0)


def _keys(facts: CheckpointFacts, example: ExampleRow) -> dict[str, Any]:
    """Returns the keys of a labelled row, with the text that an embedding is compared with."""
    return labels.evaluation_keys(facts, example) | ({} if example.other is None else {OTHER: example.other})


def _values(request: InitRequest, draft: _Draft, evaluation: _Evaluation) -> dict[str, Any]:
    """Returns the values of the template."""
    table = evaluation.table
    return {
        "name": request.name,
        "description": f"{draft.facts.architecture}, {draft.facts.task}",
        "origin": request.source if request.examples is None else f"{request.source} and {request.examples}",
        "model": table.keys,
        "notes": table.notes,
        "sequence_lengths": sequence_lengths(draft.counted, table.max_input_tokens),
        "quality_note": _quality_note(request, draft, evaluation),
        "minimums": evaluation.minimums,
        "reached": evaluation.reached,
        "percentile": request.percentile,
        "model_latency_ms": request.latency_ms,
        "peak_invocations_per_minute": request.peak_invocations_per_minute,
        "targets": tuple(request.target) or TARGETS,
        "left_out": {},
    }


def _quality_note(request: InitRequest, draft: _Draft, evaluation: _Evaluation) -> str:
    rows = f"The {evaluation.rows} rows of evaluation.jsonl"
    if not evaluation.reached:
        return (
            f"{rows} have no labels of yours. The original model's own answers label them. The metric is agreement: "
            "the share of rows that a compiled model answers as the original does. It measures what compiling changes, "
            "not how good the model is."
        )
    if not draft.labelled:
        return (
            f"{rows} have no labels of yours. The metrics compare a compiled model with the original's own numbers. "
            "They measure what compiling changes, not how good the model is."
        )
    return (
        f"{rows}, labelled in {request.examples}. A build starts only if the checkpoint reaches these minimums. By "
        f"default each is {MARGIN:g} below what it reaches now."
    )


def _plannable(
    values: dict[str, Any], requested: Sequence[str], scratch: Path, root: Path
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Writes workload.toml with the targets whose build can be planned. Returns them, and why others are left out.

    Raises the reason for a requested target, and for the first if none can be planned.
    """
    left_out: dict[str, str] = {}
    file, names = scratch / "workload.toml", values["targets"]
    for name in names:
        file.write_text(workload_toml.text({**values, "targets": (name,)}), "utf-8")
        try:
            plan(WorkloadFolder(scratch), name, root)
        except ProjectError as error:
            if name in requested or name == names[0]:
                raise
            # Without the file and the key, which the reader of workload.toml does not have.
            sentence = str(error).splitlines()[0]
            left_out[name] = re.sub(rf"^\S+: (targets\.{re.escape(name)}\.\w+: )?", "", sentence)
    targets = tuple(name for name in names if name not in left_out)
    file.write_text(workload_toml.text({**values, "targets": targets, "left_out": left_out}), "utf-8")
    WorkloadFolder(scratch)
    return targets, left_out


def _spread(count: int, limit: int) -> list[int]:
    """Returns the indices of at most `limit` rows, evenly spaced."""
    return list(range(count)) if count <= limit else [index * count // limit for index in range(limit)]


def _write_lines(file: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
