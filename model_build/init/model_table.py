"""Puts together `[model]` of workload.toml from what was found in the checkpoint and counted in the examples. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_build.checkpoint import sentence_transformers
from model_build.checkpoint.files import read_json
from model_build.init.found import Found
from model_build.init.lengths import Lengths, rounded

WRITTEN_TOKENS = 64
"""Most tokens of a generated answer where neither examples nor checkpoint tell."""
MOST_WRITTEN_TOKENS = 128
DEFAULT_FIELDS: dict[str, tuple[str, ...]] = {
    "text-classification": ("text",),
    "token-classification": ("text",),
    "feature-extraction": ("text",),
    "question-answering": ("question", "context"),
    "text-ranking": ("query", "text"),
    "text2text-generation": ("text",),
}
"""The request's fields that a task has where workload.toml does not name its segments."""
WINDOWED = {"question-answering", "token-classification"}
"""Tasks that read a request of more tokens than the model has positions in windows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelTable:
    """The keys of [model] in order, and comments on some."""

    keys: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def max_input_tokens(self) -> int:
        return int(self.keys["max_input_tokens"])

    def takes(self, tokens: int) -> bool:
        """Tells whether a request of so many tokens is answered."""
        return tokens <= self.max_input_tokens or self.longer_requests != "rejected"

    @property
    def longer_requests(self) -> str:
        """Returns what serving does with more than max_input_tokens tokens: rejected, truncated, or read in windows."""
        if "stride" in self.keys:
            return "read in windows"
        return "truncated" if self.keys.get("truncation") else "rejected"

    def with_answers(self, original: int, labels: int) -> "ModelTable":
        """Returns the table with a length of generated answers that the original's and the labels' have room in."""
        note = f"the longest answer of the original has {original}" + (
            f", the longest label {labels}" if labels else ""
        )
        longest = max(original, labels)
        keys = {**self.keys, "max_output_tokens": rounded(longest, None) if longest else self.keys["max_output_tokens"]}
        return ModelTable(keys=keys, notes={**self.notes, "max_output_tokens": note})


def model_table(
    found: Found,
    fields: tuple[str, ...],
    counted: Lengths,
    checkpoint: str,
    origin: str,
    folder: Path,
    max_input_tokens: int | None = None,
) -> ModelTable:
    """Returns the table for requests of `fields`. `folder` is where the checkpoint's files are.

    `max_input_tokens` is the user's; by default the checkpoint's limit, and if it has none, the examples' lengths.
    """
    table = ModelTable()
    _add(table, "task", found.task)
    if found.problem_type is not None:
        _add(table, "problem_type", found.problem_type)
    _add(table, "checkpoint", checkpoint, None if checkpoint != "./checkpoint" else f"copied from {origin}")
    if fields != DEFAULT_FIELDS.get(found.task):
        _add(table, "segments", [[name] for name in fields])
    limit = max_input_tokens or found.token_limit or rounded(counted.longest, None)
    _add(table, "max_input_tokens", limit, f"of the examples {counted.summary}")
    _add_long_inputs(table, found, counted, limit)
    if found.task == "text2text-generation":
        _add(table, "max_output_tokens", _written_tokens(folder, found.config))
        _add(table, "answer", "GENERATED", "the name of the answer in a response")
    if found.task == "feature-extraction":
        trained = sentence_transformers.pooled(folder)
        note = "from 1_Pooling/config.json" if trained else "as most are trained; or cls, max, last"
        _add(table, "pooling", trained.pooling if trained else "mean", note)
        _add(table, "normalize", trained is None or trained.normalize is not False)
    if found.task == "text-ranking":
        trained_for = sentence_transformers.activation(folder, found.config)
        _add(table, "activation", trained_for or "sigmoid", "of the score; none: the head's number as it is")
    if found.labels:
        note = "in the order of the head's outputs" if found.labels_are_named else "config.json has no names for them"
        _add(table, "labels", list(found.labels), note)
    if found.task == "text-classification" and found.problem_type == "multi_label_classification":
        _add(table, "threshold", 0.5, "a label of at least this score is in the answer")
    return table


def _add_long_inputs(table: ModelTable, found: Found, counted: Lengths, limit: int) -> None:
    """Adds the key that decides what happens to requests over the limit. Text generation always rejects them."""
    longer = sum(count > limit for count in counted.counts)
    examples = f"{longer} of {len(counted.counts)} examples are longer"
    if longer and found.task in WINDOWED:
        _add(table, "stride", limit // 4, f"{examples}: they are read in windows that share {limit // 4} tokens")
    elif longer and found.task != "text2text-generation":
        _add(table, "truncation", True, f"{examples}: they are truncated; false rejects them")
    elif found.task != "text2text-generation":
        _add(table, "truncation", False, "longer requests are rejected; true truncates them")


def _add(table: ModelTable, key: str, value: Any, note: str | None = None) -> None:
    table.keys[key] = value
    if note is not None:
        table.notes[key] = note


def _written_tokens(folder: Path, config: Mapping[str, Any]) -> int:
    """Returns how long the original may write before anything is known of its answers."""
    file = folder / "generation_config.json"
    known = {**config, **(read_json(file) if file.exists() else {})}
    said = known.get("max_new_tokens") or known.get("max_length")
    return min(said if isinstance(said, int) and said > 0 else WRITTEN_TOKENS, MOST_WRITTEN_TOKENS)
