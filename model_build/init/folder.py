"""Writes a workload's folder: all of it in a scratch folder first, which then takes its place in one step.

In: a `Request`. Out: `Written`, and the folder below workloads/. Which targets a checkpoint can go to is found out by
planning a build of each; the sentence with which a plan refuses one stands in workload.toml in the target's place.
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
from model_build.init.examples import OTHER, Columns, Examples, Given
from model_build.init.found import Ask, Found, find
from model_build.init.lengths import Lengths
from model_build.init.model_table import ModelTable, model_table
from model_build.init.original import ask_original, reached
from model_build.init.workload_toml import TARGETS, Contents, Decisions
from model_build.library_log import libraries_logged
from model_build.plan import plan
from model_build.progress import Progress
from workloads import Example, Model, ProjectError, TextToText, UsageError, WorkloadFolder, metrics_of
from workloads.document import Document
from workloads.errors import InvalidDocument
from workloads.workload import AGREEMENT, name_problem

MOST_ROWS = 1000
"""Rows of evaluation.jsonl and of payloads.jsonl; of more examples, so many at equal distances."""
MOST_GENERATED = 200
"""Rows of a text2text model's evaluation: `generate` is slow."""
BELOW = 0.05
"""How far below what the original reaches a minimum is set where nobody said one."""
SIGNED = {"pearson", "spearman", "score_correlation", "cosine_spearman", "cosine_to_original"}
"""Metrics from -1 to 1; others are from 0 to 1."""
AGREES = 0.98
"""The least agreement where nobody said one: a compiled model may differ by a rounding in one of fifty."""


class _ModelAlone(Document):
    """The [model] of a workload.toml that is not written yet."""

    model: Model


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """The options of the command line. Empty and None leave it to the files."""

    name: str
    source: str
    task: str | None = None
    examples: Path | None = None
    columns: Columns
    labels: tuple[str, ...] = ()
    max_input_tokens: int | None = None
    targets: tuple[str, ...] = ()
    minimums: Mapping[str, float]
    percentile: str
    model_latency_ms: float
    peak_invocations_per_minute: int
    overwrite: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """The facts of a folder that was written: the document of --json."""

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


def write(request: Request, root: Path, ask: Ask, progress: Progress) -> Written:
    """Raises `UsageError` for what the files or the command line have wrong, and `Unavailable` for what cannot be had.

    Until all is written and has been planned, nothing lies below workloads/.
    """
    folder = _free_folder(request, root)
    (root / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".init-", dir=root / "build") as scratch:
        made = Path(scratch) / request.name
        made.mkdir()
        try:
            written = _write(request, root, made, ask, progress)
        except ProjectError as error:
            error.args = (_as_given(str(error), request, made),)
            raise
        _move(made, folder)
    return written


def _as_given(said: str, request: Request, made: Path) -> str:
    """Returns a message with the files of the scratch folder named as those that they were copied or written from."""
    source = Path(request.source).expanduser()
    said = said.replace(str(made / "checkpoint"), str(source.resolve() if source.is_dir() else request.source))
    return said.replace(str(made), f"workloads/{request.name}")


def _free_folder(request: Request, root: Path) -> Path:
    if problem := name_problem(request.name):
        raise UsageError(f"NAME: {problem}")
    folder = root / "workloads" / request.name
    if folder.exists() and not request.overwrite:
        raise UsageError(f"{folder} is there already, and was left as it is. Give another name, or say --overwrite.")
    return folder


def _move(made: Path, folder: Path) -> None:
    """Puts the files in their place; of a folder that is there, those that are written anew."""
    if not folder.exists():
        made.rename(folder)
        return
    for each in sorted(made.iterdir(), key=lambda each: each.name == "workload.toml"):
        place = folder / each.name
        if place.is_dir():
            shutil.rmtree(place)
        each.replace(place)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Draft:
    """All that is known before the original is asked. `folder` has the checkpoint as a build will read it."""

    found: Found
    folder: Path
    table: ModelTable
    counted: Lengths
    rows: tuple[Given, ...]
    """The examples that the model can be asked."""
    labelled: bool
    label_column: str | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Labelled:
    """The evaluation, and what the original reaches on it; `reached` is empty where it labelled the rows itself."""

    rows: int
    table: ModelTable
    minimums: dict[str, float]
    reached: dict[str, float]


def _write(request: Request, root: Path, made: Path, ask: Ask, progress: Progress) -> Written:
    progress("Reading the checkpoint")
    draft = _draft(request, root, made, ask)
    labelled = _labelled(request, draft, made, progress)
    payloads = [draft.rows[index].asked for index in _spread(len(draft.rows), MOST_ROWS)]
    _write_lines(made / "payloads.jsonl", payloads)
    progress("Planning a build for each target")
    contents = _plannable(_contents(request, draft, labelled), request.targets, made, root)
    return Written(
        workload=request.name,
        folder=f"workloads/{request.name}",
        stack=WorkloadFolder(made).workload.stack_name,
        architecture=draft.found.architecture,
        task=draft.found.task,
        max_input_tokens=labelled.table.max_input_tokens,
        checkpoint_token_limit=draft.found.token_limit,
        longer_requests=_longer_requests(labelled.table),
        lengths=draft.counted.summary,
        evaluation_rows=labelled.rows,
        payloads=len(payloads),
        labelled_by="examples" if draft.labelled else "original",
        label_column=draft.label_column,
        minimums=labelled.minimums,
        targets=tuple(contents.targets),
        left_out=contents.left_out,
        warnings=(*draft.warnings, *_gates_that_cannot_fail(labelled)),
    )


def _gates_that_cannot_fail(labelled: _Labelled) -> Iterator[str]:
    for metric, least in labelled.minimums.items():
        if least <= (-1 if metric in SIGNED else 0):
            reached = labelled.reached.get(metric)
            now = "" if reached is None else f" The checkpoint reaches {reached:.4f}."
            yield f"{metric} is at least {least:g}, so this gate cannot fail.{now} --min {metric}=VALUE sets another."


def _draft(request: Request, root: Path, made: Path, ask: Ask) -> _Draft:
    fetched = source.fetch(request.source, root / "build" / "checkpoints")
    folder = fetched.folder
    found = find(folder, request.task, request.labels, ask)
    _check_family(folder, found)
    if copied := fetched.copied or not source.names_its_labels(found):
        source.copy(folder, made / "checkpoint", found)
        folder = made / "checkpoint"
    _check_max_input_tokens(request, found)
    named_labels = () if found.task == "token-classification" else found.labels
    given = examples.of_task(found.task, request.examples, request.columns, named_labels)
    fields = tuple(given.given[0].asked)
    counts = lengths.count(folder / "tokenizer.json", [tuple(row.asked.values()) for row in given.given])
    counted = Lengths(counts=tuple(sorted(counts)))
    named = source.COPY if copied else fetched.origin
    table = model_table(found, fields, counted, named, fetched.origin, folder, request.max_input_tokens)
    rows = tuple(row for row, count in zip(given.given, counts, strict=True) if table.takes(count))
    if not rows:
        raise UsageError(
            f"--examples {request.examples}: all are longer than max_input_tokens = {table.max_input_tokens}. Give "
            "shorter examples."
        )
    return _Draft(
        found=found,
        folder=folder,
        table=table,
        counted=counted,
        rows=rows,
        labelled=given.labelled,
        label_column=given.label_column,
        warnings=tuple(_warnings(request, found, folder, given, len(counts) - len(rows), table)),
    )


def _check_max_input_tokens(request: Request, found: Found) -> None:
    asked, most = request.max_input_tokens, found.positions
    if asked is not None and (asked < 1 or (most is not None and asked > most)):
        allowed = "1 or more" if most is None else f"1 to {most}, the checkpoint's positions"
        raise UsageError(f"--max-input-tokens: got {asked}. Allowed: {allowed}.")


def _longer_requests(table: ModelTable) -> str:
    key = "stride" if "stride" in table.keys else "truncation"
    value = f" (model.{key} = {json.dumps(table.keys[key])})" if key in table.keys else ""
    return f"{table.longer_requests}{value}"


def _check_family(folder: Path, found: Found) -> None:
    """Raises `UsageError` for an architecture that no build reads, before anything that depends on it is looked at."""
    if found.task == "text2text-generation":
        read_text2text(folder)
    else:
        family_of(found.config, folder / "config.json")


def _warnings(
    request: Request, found: Found, folder: Path, given: Examples, left_out: int, table: ModelTable
) -> Iterator[str]:
    if request.examples is None:
        yield (
            "--examples: none given, so evaluation.jsonl and payloads.jsonl have a few made-up sentences in English. "
            "Put real requests there before you believe a figure."
        )
    if given.unused:
        yield f"--examples: not used: {', '.join(given.unused)}. --text-column and --label-column name other columns."
    if left_out:
        yield f"{left_out} examples are longer than max_input_tokens = {table.max_input_tokens} and were left out."
    yield from sentence_transformers.done_before(folder)
    if found.labels and not found.labels_are_named:
        yield f"config.json has no names for its labels: answers say {found.labels[0]} and so on. --labels names them."


def _labelled(request: Request, draft: _Draft, made: Path, progress: Progress) -> _Labelled:
    """Asks the original for its answers to the rows of the evaluation, and writes them with their labels."""
    model = _ModelAlone.from_table(Path("workload.toml"), {"model": draft.table.keys}).model
    rows = [draft.rows[index] for index in _spread(len(draft.rows), _most(model))]
    keys = [_keys(draft.found, row) for row in rows] if draft.labelled else []
    asked = [Example(row=row.asked, label="") for row in rows]
    with libraries_logged(made.parent / "libraries.log"):
        originals = ask_original(read(draft.folder, draft.folder, model), model, asked, progress)
    table = draft.table
    if isinstance(model, TextToText):
        written = [str(each["label"]) for each in keys]
        table = table.with_answers(originals.longest_answer, lengths.longest(draft.folder / "tokenizer.json", written))
    agrees = not draft.labelled and draft.found.task in AGREEING and draft.found.problem_type != "regression"
    names = (AGREEMENT,) if agrees else metrics_of(model)
    if odd := sorted(set(request.minimums) - set(names)):
        raise UsageError(f"--min: '{odd[0]}' is not measured on these examples. Allowed: {', '.join(names)}.")
    lines = [{**row.asked, **each} for row, each in zip(rows, keys or originals.keys, strict=True)]
    _write_lines(made / "evaluation.jsonl", lines)
    if agrees:
        return _Labelled(rows=len(lines), table=table, minimums={AGREEMENT: AGREES, **request.minimums}, reached={})
    draft = replace(draft, table=table)
    provisional = _Labelled(rows=len(lines), table=table, minimums=dict.fromkeys(names, -1.0), reached={})
    (made / "workload.toml").write_text(workload_toml.text(_contents(request, draft, provisional)), "utf-8")
    measured = reached(names, _read_back(made, rows), originals.answers)
    default = {name: _below(value) for name, value in measured.items()}
    return replace(provisional, minimums={**default, **request.minimums}, reached=measured)


def _read_back(made: Path, rows: Sequence[Given]) -> list[Example]:
    """Returns the evaluation as a build reads it. Raises `InvalidDocument` for a label at the user's own line."""
    try:
        return WorkloadFolder(made).evaluation()
    except InvalidDocument as error:
        number = error.file.name.rpartition(":")[2]
        if not number.isdecimal():
            raise
        raise InvalidDocument(Path(rows[int(number) - 1].where), error.problems) from None


def _below(value: float) -> float:
    """Returns a minimum of two decimals for what the original reaches; none is below 0 for a share."""
    least = math.floor((value - BELOW) * 100) / 100
    return max(least, 0.0 if value >= 0 else -1.0)


AGREEING = {
    "text2text-generation",
    "text-classification",
    "text-pair-scoring",
    "question-answering",
    "token-classification",
}
"""Tasks whose answer is a text or a label, which another model gives or does not; numbers agree by a correlation."""


def _most(model: Model) -> int:
    return MOST_GENERATED if isinstance(model, TextToText) else MOST_ROWS


def _keys(found: Found, given: Given) -> dict[str, Any]:
    """Returns the keys of a labelled row, with the text that an embedding is compared with."""
    return labels.evaluation_keys(found, given) | ({} if given.other is None else {OTHER: given.other})


def _contents(request: Request, draft: _Draft, labelled: _Labelled) -> Contents:
    return Contents(
        name=request.name,
        description=f"{draft.found.architecture}, {draft.found.task}",
        origin=request.source if request.examples is None else f"{request.source} and {request.examples}",
        model=labelled.table.keys,
        notes=labelled.table.notes,
        lengths=draft.counted,
        quality_note=_quality_note(request, draft, labelled),
        reached=labelled.reached,
        decisions=Decisions(
            minimums=labelled.minimums,
            percentile=request.percentile,
            model_latency_ms=request.model_latency_ms,
            peak_invocations_per_minute=request.peak_invocations_per_minute,
        ),
        targets=request.targets or tuple(TARGETS),
        left_out={},
    )


def _quality_note(request: Request, draft: _Draft, labelled: _Labelled) -> str:
    count, file = labelled.rows, request.examples
    if not labelled.reached:
        return (
            f"The {count} rows of evaluation.jsonl have no labels of yours. Their labels are the original model's own "
            "answers. The metric is agreement: the share of rows that a compiled model answers as the original does. "
            "It measures what compiling changes, not how good the model is."
        )
    if not draft.labelled:
        return (
            f"The {count} rows of evaluation.jsonl have no labels of yours. The metrics compare a compiled model with "
            "the original's own numbers. They measure what compiling changes, not how good the model is."
        )
    return (
        f"What the checkpoint must reach on the {count} rows of evaluation.jsonl, labelled in {file}, before anything "
        f"is built from it. Each is set {BELOW:g} below what it reaches now."
    )


def _plannable(contents: Contents, asked: Sequence[str], made: Path, root: Path) -> Contents:
    """Writes workload.toml with the targets for which a build can be planned, and the reasons for the others.

    Raises the reason of a target that was asked for, and of the first where none can be planned.
    """
    left_out: dict[str, str] = {}
    file = made / "workload.toml"
    for name in contents.targets:
        alone = replace(contents, targets=(name,))
        file.write_text(workload_toml.text(alone), "utf-8")
        try:
            plan(WorkloadFolder(made), name, root)
        except ProjectError as error:
            if name in asked or name == contents.targets[0]:
                raise
            left_out[name] = _reason(str(error), name)
    kept = replace(
        contents, targets=tuple(name for name in contents.targets if name not in left_out), left_out=left_out
    )
    file.write_text(workload_toml.text(kept), "utf-8")
    WorkloadFolder(made)
    return kept


def _reason(sentence: str, target: str) -> str:
    """Returns a refusal without the file and the key that it names."""
    return re.sub(rf"^\S+: (targets\.{re.escape(target)}\.\w+: )?", "", sentence.splitlines()[0])


def _spread(count: int, most: int) -> list[int]:
    """Returns the numbers of `most` rows out of so many, at equal distances, or of all."""
    return list(range(count)) if count <= most else [index * count // most for index in range(most)]


def _write_lines(file: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
