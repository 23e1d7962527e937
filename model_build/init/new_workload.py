"""Writes a workload's folder: first into a scratch folder, which then moves into its place in one step.

The targets of a checkpoint are found by planning a build of each. workload.toml states why a target is missing.
"""

import argparse
import json
import math
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from model_build.accuracy import Answered, measure
from model_build.checkpoint import read, sentence_transformers
from model_build.checkpoint.families import family_of
from model_build.checkpoint.text2text import read_text2text
from model_build.init import checkpoint_source, examples, labels
from model_build.init.checkpoint_facts import find
from model_build.init.examples import OTHER, ExampleRow
from model_build.init.model_table import TARGETS, Lengths, count, longest, model_table, sequence_lengths, workload_toml
from model_build.init.original import ask_original
from model_build.library_log import libraries_logged
from model_build.plan import plan
from model_build.progress import Progress
from workloads import Example, LatencyObjective, Model, ProjectError, TextToText, UsageError, WorkloadFolder, metrics_of
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


def write(request: argparse.Namespace, root: Path, progress: Progress) -> dict[str, Any]:
    """Returns the document of --json. `request` has the options of the command line.

    Raises `UsageError` for errors of the files or the command line, and `Unavailable` for files that cannot be fetched.
    Until everything is written and planned, nothing lies below workloads/.
    """
    folder = root / "workloads" / request.name
    if problem := name_problem(request.name):
        raise UsageError(f"NAME: {problem}")
    objective = {
        "percentile": request.percentile,
        "model_latency_ms": request.latency_ms,
        "peak_invocations_per_minute": request.peak_invocations_per_minute,
    }
    LatencyObjective.from_table(Path("[objective]"), objective)
    if folder.exists() and not request.overwrite:
        raise UsageError(f"{folder} exists and was not changed. Give another name, or add --overwrite.")
    (root / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".init-", dir=root / "build") as scratch_root:
        scratch = Path(scratch_root) / request.name
        scratch.mkdir()
        try:
            document = _Draft(request, root, scratch, progress).write()
        except ProjectError as error:
            error.args = (_with_original_paths(str(error), request, scratch),)
            raise
        _move(scratch, folder)
    return document


def _with_original_paths(message: str, request: argparse.Namespace, scratch: Path) -> str:
    """Returns a message with the files of the scratch folder named as the user knows them."""
    path = Path(request.source).expanduser()
    message = message.replace(str(scratch / "checkpoint"), str(path.resolve() if path.is_dir() else request.source))
    return message.replace(str(scratch), f"workloads/{request.name}")


def _move(scratch: Path, folder: Path) -> None:
    """Moves the files into their place; in an existing folder, only those that were written."""
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        scratch.rename(folder)
        return
    for each in sorted(scratch.iterdir(), key=lambda each: each.name == "workload.toml"):
        place = folder / each.name
        if place.is_dir():
            shutil.rmtree(place)
        each.replace(place)


class _Draft:
    """A workload's folder in the making. The constructor reads checkpoint and examples; `write` writes the folder."""

    def __init__(self, request: argparse.Namespace, root: Path, scratch: Path, progress: Progress) -> None:
        progress("Reading the checkpoint")
        self.request, self.root, self.scratch, self.progress = request, root, scratch, progress
        fetched = checkpoint_source.fetch(request.source, root / "build" / "checkpoints")
        self.folder = fetched.folder
        self.facts = facts = find(self.folder, request.task, request.labels)
        # An architecture that no build reads is refused before anything that depends on it.
        if facts.task == "text2text-generation":
            read_text2text(self.folder)
        else:
            family_of(facts.config, self.folder / "config.json")
        if copied := fetched.copied or not checkpoint_source.names_its_labels(facts):
            checkpoint_source.copy(self.folder, scratch / "checkpoint", facts)
            self.folder = scratch / "checkpoint"
        self._check_max_input_tokens()
        self.given = given = examples.of_task(
            facts.task,
            request.examples,
            text_columns=tuple(request.text_column),
            label_column=request.label_column,
            labels=() if facts.task == "token-classification" else facts.labels,
        )
        counts = count(self.tokenizer, [tuple(row.request.values()) for row in given.rows])
        self.counted = Lengths(counts=tuple(sorted(counts)))
        self.table = model_table(
            facts,
            tuple(given.rows[0].request),
            self.counted,
            checkpoint_source.COPY if copied else fetched.origin,
            fetched.origin,
            self.folder,
            request.max_input_tokens,
        )
        self.rows = [row for row, tokens in zip(given.rows, counts, strict=True) if self.table.takes(tokens)]
        if not self.rows:
            raise UsageError(
                f"--examples {request.examples}: all are longer than max_input_tokens = "
                f"{self.table.max_input_tokens}. Give shorter examples."
            )
        self.minimums: dict[str, float] = {}
        self.reached: dict[str, float] = {}
        """The original's figures; empty if it labelled the rows itself."""
        self.evaluation_rows = 0

    @property
    def tokenizer(self) -> Path:
        return self.folder / "tokenizer.json"

    def _check_max_input_tokens(self) -> None:
        limit, positions = self.request.max_input_tokens, self.facts.positions
        if limit is not None and (limit < 1 or (positions is not None and limit > positions)):
            allowed = "1 or more" if positions is None else f"1 to {positions}, the checkpoint's positions"
            raise UsageError(f"--max-input-tokens: got {limit}. Allowed: {allowed}.")

    def write(self) -> dict[str, Any]:
        self._evaluate()
        payloads = [self.rows[index].request for index in _spread(len(self.rows), MAX_ROWS)]
        _write_lines(self.scratch / "payloads.jsonl", payloads)
        self.progress("Planning a build for each target")
        targets, left_out = self._plan()
        return {
            "workload": self.request.name,
            "folder": f"workloads/{self.request.name}",
            "stack": WorkloadFolder(self.scratch).workload.stack_name,
            "architecture": self.facts.architecture,
            "task": self.facts.task,
            "max_input_tokens": self.table.max_input_tokens,
            "checkpoint_token_limit": self.facts.token_limit,
            "longer_requests": self.table.longer_requests,
            "lengths": self.counted.summary,
            "evaluation_rows": self.evaluation_rows,
            "payloads": len(payloads),
            "labelled_by": "examples" if self.given.labelled else "original",
            "label_column": self.given.label_column,
            "minimums": self.minimums,
            "targets": targets,
            "left_out": left_out,
            "warnings": [*self._warnings()],
        }

    def _warnings(self) -> Iterator[str]:
        if self.request.examples is None:
            yield (
                "--examples: none given, so evaluation.jsonl and payloads.jsonl have a few made-up sentences in "
                "English. Replace them with real requests before you rely on a figure."
            )
        if unused := ", ".join(self.given.unused):
            yield f"--examples: not used: {unused}. --text-column and --label-column name other columns."
        if left_out := len(self.given.rows) - len(self.rows):
            limit = self.table.max_input_tokens
            yield f"{left_out} examples are longer than max_input_tokens = {limit} and were left out."
        yield from sentence_transformers.done_before(self.folder)
        if self.facts.labels and not self.facts.labels_are_named:
            name = self.facts.labels[0]
            yield f"config.json has no names for its labels: answers say {name} and so on. --labels names them."
        for metric, least in self.minimums.items():
            if least <= (-1 if metric in SIGNED else 0):
                figure = self.reached.get(metric)
                now = "" if figure is None else f" The checkpoint reaches {figure:.4f}."
                yield f"{metric} is at least {least:g}, so this gate cannot fail.{now} Set --min {metric}=VALUE."

    def _evaluate(self) -> None:
        """Runs the original model on the rows of the evaluation, and writes them with their labels."""
        model = _ModelTable.from_table(Path("workload.toml"), {"model": self.table.keys}).model
        limit = MAX_GENERATED_ROWS if isinstance(model, TextToText) else MAX_ROWS
        rows = [self.rows[index] for index in _spread(len(self.rows), limit)]
        keys = []
        if self.given.labelled:  # with the text that an embedding is compared with
            others = [{OTHER: row.row[OTHER]} if OTHER in row.row else {} for row in rows]
            keys = [labels.evaluation_keys(self.facts, row) | other for row, other in zip(rows, others, strict=True)]
        with libraries_logged(self.scratch.parent / "libraries.log"):
            checkpoint = read(self.folder, self.folder, model)
            self.weight_count = checkpoint.weight_count
            unlabelled = [Example(row=row.request, label="") for row in rows]
            originals = ask_original(checkpoint, model, unlabelled, self.progress)
        if isinstance(model, TextToText):
            label_tokens = longest(self.tokenizer, [str(each["label"]) for each in keys])
            self.table = self.table.with_answers(originals.longest_answer, label_tokens)
        agrees = not keys and self.facts.task in AGREEING and self.facts.problem_type != "regression"
        names = (AGREEMENT,) if agrees else metrics_of(model)
        minimums = dict(self.request.min)
        if odd := sorted(set(minimums) - set(names)):
            raise UsageError(f"--min: '{odd[0]}' is not measured on these examples. Allowed: {', '.join(names)}.")
        lines = [{**row.request, **each} for row, each in zip(rows, keys or originals.keys, strict=True)]
        _write_lines(self.scratch / "evaluation.jsonl", lines)
        self.evaluation_rows = len(lines)
        self.minimums = {AGREEMENT: MIN_AGREEMENT, **minimums} if agrees else dict.fromkeys(names, -1.0)
        if not agrees:
            self._write_toml()
            evaluation = _read_back(self.scratch, rows)
            answered = [Answered(*each) for each in zip(evaluation, originals.answers, strict=True)]
            self.reached = measure(names, answered)
            self.minimums = {**{name: _below(figure) for name, figure in self.reached.items()}, **minimums}

    def _plan(self) -> tuple[list[str], dict[str, str]]:
        """Writes workload.toml with the targets whose build can be planned. Returns them, and why others are left out.

        Raises the reason for a requested target, and for the first if none can be planned.
        """
        names, left_out = tuple(self.request.target) or TARGETS, dict[str, str]()
        for name in names:
            self._write_toml(targets=[name])
            try:
                plan(WorkloadFolder(self.scratch), name, self.root)
            except ProjectError as error:
                if name in self.request.target or name == names[0]:
                    raise
                # Without the file and the key, which the reader of workload.toml does not have.
                sentence = str(error).splitlines()[0]
                left_out[name] = re.sub(rf"^\S+: (targets\.{re.escape(name)}\.\w+: )?", "", sentence)
        targets = [name for name in names if name not in left_out]
        self._write_toml(targets=targets, left_out=left_out)
        WorkloadFolder(self.scratch)
        return targets, left_out

    def _write_toml(self, targets: Sequence[str] = TARGETS, left_out: Mapping[str, str] | None = None) -> None:
        request = self.request
        text = workload_toml(
            name=request.name,
            description=f"{self.facts.architecture}, {self.facts.task}",
            origin=request.source if request.examples is None else f"{request.source} and {request.examples}",
            model=self.table.keys,
            notes=self.table.notes,
            sequence_lengths=sequence_lengths(self.counted, self.table.max_input_tokens),
            evaluation_rows=self.evaluation_rows,
            labelled_in=request.examples if self.given.labelled else None,
            margin=MARGIN,
            minimums=self.minimums,
            reached=self.reached,
            percentile=request.percentile,
            model_latency_ms=request.latency_ms,
            peak_invocations_per_minute=request.peak_invocations_per_minute,
            facts=self.facts,
            weight_count=self.weight_count,
            targets=targets,
            left_out=left_out or {},
        )
        (self.scratch / "workload.toml").write_text(text, "utf-8")


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


def _spread(count: int, limit: int) -> list[int]:
    """Returns the indices of at most `limit` rows, evenly spaced."""
    return list(range(count)) if count <= limit else [index * count // limit for index in range(limit)]


def _write_lines(file: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
