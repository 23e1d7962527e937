"""Composes `[model]` of workload.toml from the checkpoint's facts and the lengths of the examples."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_build.checkpoint import sentence_transformers
from model_build.checkpoint.files import read_json
from model_build.init.checkpoint_facts import CheckpointFacts
from model_build.init.lengths import Lengths, rounded

WRITTEN_TOKENS = 64
"""Default length of a generated answer, in tokens."""
MAX_WRITTEN_TOKENS = 128
DEFAULT_FIELDS: dict[str, tuple[str, ...]] = {
    "text-classification": ("text",),
    "token-classification": ("text",),
    "feature-extraction": ("text",),
    "question-answering": ("question", "context"),
    "text-ranking": ("query", "text"),
    "text2text-generation": ("text",),
}
"""The request's fields of a task whose workload.toml names no segments."""
WINDOWED = {"question-answering", "token-classification"}
"""Tasks that read a request beyond the model's positions in windows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelTable:
    """The keys of [model] in order, and comments on some."""

    keys: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def max_input_tokens(self) -> int:
        return int(self.keys["max_input_tokens"])

    def takes(self, tokens: int) -> bool:
        """Returns True if a request of that length is answered."""
        return tokens <= self.max_input_tokens or self.longer_requests != "rejected"

    @property
    def longer_requests(self) -> str:
        """Requests of more than max_input_tokens tokens are rejected, truncated, or read in windows."""
        if "stride" in self.keys:
            return "read in windows"
        return "truncated" if self.keys.get("truncation") else "rejected"

    @property
    def longer_requests_with_key(self) -> str:
        key = "stride" if "stride" in self.keys else "truncation"
        value = f" (model.{key} = {json.dumps(self.keys[key])})" if key in self.keys else ""
        return f"{self.longer_requests}{value}"

    def with_answers(self, original: int, labels: int) -> "ModelTable":
        """Returns the table with room for the longest answer of the original and the longest label."""
        note = f"the longest answer of the original has {original}" + (
            f", the longest label {labels}" if labels else ""
        )
        longest = max(original, labels)
        keys = {**self.keys, "max_output_tokens": rounded(longest, None) if longest else self.keys["max_output_tokens"]}
        return ModelTable(keys=keys, notes={**self.notes, "max_output_tokens": note})


def model_table(
    facts: CheckpointFacts,
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
    _add(table, "task", facts.task)
    if facts.problem_type is not None:
        _add(table, "problem_type", facts.problem_type)
    _add(table, "checkpoint", checkpoint, None if checkpoint != "./checkpoint" else f"copied from {origin}")
    if fields != DEFAULT_FIELDS.get(facts.task):
        _add(table, "segments", [[name] for name in fields])
    limit = max_input_tokens or facts.token_limit or rounded(counted.longest, None)
    _add(table, "max_input_tokens", limit, f"of the examples {counted.summary}")
    _add_long_inputs(table, facts, counted, limit)
    if facts.task == "text2text-generation":
        _add(table, "max_output_tokens", _written_tokens(folder, facts.config))
        _add(table, "answer", "GENERATED", "the name of the answer in a response")
    if facts.task == "feature-extraction":
        trained = sentence_transformers.pooled(folder)
        note = "from 1_Pooling/config.json" if trained else "as most are trained; or cls, max, last"
        _add(table, "pooling", trained.pooling if trained else "mean", note)
        _add(table, "normalize", trained is None or trained.normalize is not False)
    if facts.task == "text-ranking":
        trained_for = sentence_transformers.activation(folder, facts.config)
        _add(table, "activation", trained_for or "sigmoid", "of the score; none: the head's number as it is")
    if facts.labels:
        note = "in the order of the head's outputs" if facts.labels_are_named else "config.json has no names for them"
        _add(table, "labels", list(facts.labels), note)
    if facts.task == "text-classification" and facts.problem_type == "multi_label_classification":
        _add(table, "threshold", 0.5, "a label of at least this score is in the answer")
    return table


def _add_long_inputs(table: ModelTable, facts: CheckpointFacts, counted: Lengths, limit: int) -> None:
    """Adds the key that decides what happens to requests over the limit. Text generation always rejects them."""
    longer = sum(count > limit for count in counted.counts)
    examples = f"{longer} of {len(counted.counts)} examples are longer"
    if longer and facts.task in WINDOWED:
        _add(table, "stride", limit // 4, f"{examples}: they are read in windows that share {limit // 4} tokens")
    elif longer and facts.task != "text2text-generation":
        _add(table, "truncation", True, f"{examples}: they are truncated; false rejects them")
    elif facts.task != "text2text-generation":
        _add(table, "truncation", False, "longer requests are rejected; true truncates them")


def _add(table: ModelTable, key: str, value: Any, note: str | None = None) -> None:
    table.keys[key] = value
    if note is not None:
        table.notes[key] = note


def _written_tokens(folder: Path, config: Mapping[str, Any]) -> int:
    """Returns the limit for the original's answers, before their lengths are known."""
    file = folder / "generation_config.json"
    known = {**config, **(read_json(file) if file.exists() else {})}
    limit = known.get("max_new_tokens") or known.get("max_length")
    return min(limit if isinstance(limit, int) and limit > 0 else WRITTEN_TOKENS, MAX_WRITTEN_TOKENS)
