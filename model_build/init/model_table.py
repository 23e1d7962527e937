"""Composes `[model]` of workload.toml from checkpoint and examples, and renders the file."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import TextWrapper
from typing import Any

from model_build.checkpoint import loading, sentence_transformers
from model_build.checkpoint.files import read_json
from model_build.checkpoint.tokenizer import check_time
from model_build.compile_inputs import MIN_CALIBRATION_ROWS
from model_build.init.checkpoint_facts import CheckpointFacts
from workloads.instances import candidates

TEMPLATE = Path(__file__).with_name("workload.toml.jinja")
TARGETS = ("cpu", "cpu-int8", "tensorrt", "inf1", "inf2")
"""The targets that the template has."""
STEPS = (16, 32, 64, 96, 128, 192, 256, 384, 512)
"""Lengths in tokens to which a limit is rounded up; longer ones are multiples of the last."""
WRITTEN_TOKENS, MAX_WRITTEN_TOKENS = 64, 128
"""Default and largest length of a generated answer, in tokens."""
DEFAULT_FIELDS: dict[str, tuple[str, ...]] = {
    "question-answering": ("question", "context"),
    "text-ranking": ("query", "text"),
}
"""The request's fields of a task whose workload.toml names no segments; one text for all other tasks."""
BASE_WIDTH = 768
"""Numbers for a token between two layers, from which an encoder is of base size."""
WINDOWED = {"question-answering", "token-classification"}
"""Tasks that read a request beyond the model's positions in windows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Token counts of examples, special tokens included, in ascending order."""

    counts: tuple[int, ...]

    def percentile(self, share: float) -> int:
        """Returns the nearest-rank percentile of the counts."""
        return self.counts[max(0, math.ceil(share * len(self.counts)) - 1)]

    @property
    def summary(self) -> str:
        """Returns `half have at most 12, 95 % at most 31, the longest 40`."""
        half, most = self.percentile(0.5), self.percentile(0.95)
        return f"half have at most {half}, 95 % at most {most}, the longest {self.counts[-1]}"


def count(tokenizer_file: Path, texts: Sequence[tuple[str, ...]]) -> list[int]:
    """Returns the tokens of each row of one or two texts, special ones included."""
    from tokenizers import Tokenizer

    check_time(tokenizer_file)
    with loading(tokenizer_file):
        tokenizer = Tokenizer.from_file(str(tokenizer_file))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        encoded = tokenizer.encode_batch([each if len(each) > 1 else each[0] for each in texts])
    return [len(each) for each in encoded]


def rounded(tokens: int, most: int | None) -> int:
    """Returns the next of `STEPS` at or over `tokens`, at most `most`."""
    step = next((step for step in STEPS if step >= tokens), math.ceil(tokens / STEPS[-1]) * STEPS[-1])
    return step if most is None else min(step, most)


def sequence_lengths(lengths: Lengths, limit: int) -> tuple[int, ...]:
    """Returns the lengths to compile a graph for, ascending: for half of the examples, for most and for all."""
    chosen = {rounded(lengths.percentile(share), limit) for share in (0.5, 0.95)}
    return (*sorted(length for length in chosen if length < limit), limit)


def longest(tokenizer_file: Path, texts: Sequence[str]) -> int:
    """Returns the tokens of the longest text; 0 of none."""
    return max(count(tokenizer_file, [(text,) for text in texts]), default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelTable:
    """The keys of [model] in order, and comments on some."""

    keys: Mapping[str, Any]
    notes: Mapping[str, str]

    @property
    def max_input_tokens(self) -> int:
        return int(self.keys["max_input_tokens"])

    def takes(self, tokens: int) -> bool:
        """Returns True if a request of that length is answered."""
        return tokens <= self.max_input_tokens or "stride" in self.keys or bool(self.keys.get("truncation"))

    @property
    def longer_requests(self) -> str:
        """Returns what happens to requests of more than max_input_tokens tokens, with the key that decides it."""
        key = "stride" if "stride" in self.keys else "truncation"
        value = f" (model.{key} = {json.dumps(self.keys[key])})" if key in self.keys else ""
        action = "read in windows" if key == "stride" else "truncated" if self.keys.get(key) else "rejected"
        return f"{action}{value}"

    def with_answers(self, original: int, labels: int) -> "ModelTable":
        """Returns the table with room for the longest answer of the original and the longest label."""
        note = f"the longest answer of the original has {original}" + (
            f", the longest label {labels}" if labels else ""
        )
        longest = rounded(max(original, labels), None) if original or labels else self.keys["max_output_tokens"]
        return replace(
            self, keys={**self.keys, "max_output_tokens": longest}, notes={**self.notes, "max_output_tokens": note}
        )


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
    limit = max_input_tokens or facts.token_limit or rounded(counted.counts[-1], None)
    longer = sum(count > limit for count in counted.counts)
    examples = f"{longer} of {len(counted.counts)} examples are longer"
    # The key that decides what happens to requests over the limit. Text generation always rejects them.
    long_inputs = {"stride": limit // 4} if longer and facts.task in WINDOWED else {"truncation": longer > 0}
    if facts.task == "text2text-generation":
        long_inputs = {}
    keys = {
        "task": facts.task,
        "problem_type": facts.problem_type,
        "checkpoint": checkpoint,
        "segments": None if fields == DEFAULT_FIELDS.get(facts.task, ("text",)) else [[name] for name in fields],
        "max_input_tokens": limit,
        **long_inputs,
        **_keys_of_task(facts, folder),
        "labels": list(facts.labels) or None,
        "threshold": 0.5 if facts.problem_type == "multi_label_classification" else None,
    }
    notes = {
        "checkpoint": f"copied from {origin}" if checkpoint == "./checkpoint" else None,
        "max_input_tokens": f"of the examples {counted.summary}",
        "stride": f"{examples}: they are read in windows that share {limit // 4} tokens",
        "truncation": f"{examples}: they are truncated; false rejects them"
        if longer
        else "longer requests are rejected; true truncates them",
        "answer": "the name of the answer in a response",
        "pooling": "as the checkpoint names it, else mean; or cls, max, last",
        "activation": "of the score; none: the head's own number",
        "labels": "in the order of the head's outputs"
        if facts.labels_are_named
        else "config.json has no names for them",
        "threshold": "a label of at least this score is in the answer",
    }
    return ModelTable(
        keys={key: value for key, value in keys.items() if value is not None},
        notes={key: note for key, note in notes.items() if note is not None},
    )


def _keys_of_task(facts: CheckpointFacts, folder: Path) -> dict[str, Any]:
    match facts.task:
        case "text2text-generation":
            return {"max_output_tokens": _written_tokens(folder, facts.config), "answer": "GENERATED"}
        case "feature-extraction":
            trained = sentence_transformers.pooled(folder)
            pooling = trained.pooling if trained else "mean"
            return {"pooling": pooling, "normalize": trained is None or trained.normalize is not False}
        case "text-ranking":
            return {"activation": sentence_transformers.activation(folder, facts.config) or "sigmoid"}
        case _:
            return {}


def _written_tokens(folder: Path, config: Mapping[str, Any]) -> int:
    """Returns the limit for the original's answers, before their lengths are known."""
    file = folder / "generation_config.json"
    known = {**config, **(read_json(file) if file.exists() else {})}
    limit = known.get("max_new_tokens") or known.get("max_length")
    return min(limit if isinstance(limit, int) and limit > 0 else WRITTEN_TOKENS, MAX_WRITTEN_TOKENS)


def cpu_runtime(facts: CheckpointFacts, precision: str, evaluation_rows: int) -> str:
    """Returns the CPU runtime of a target on ml.c5: OpenVINO for encoders of base size, ONNX Runtime for the others.

    ml.c5 has no bf16. Source: `python benchmarks/encoders.py --group bert` for a width of 768. At the width of this
    repository's workloads, 128, ONNX Runtime is faster. OpenVINO's int8 needs rows to calibrate.
    """
    width = facts.config.get("hidden_size") or facts.config.get("dim") or 0
    calibrates = precision == "fp32" or evaluation_rows >= MIN_CALIBRATION_ROWS
    return "openvino" if facts.task != "text2text-generation" and width >= BASE_WIDTH and calibrates else "onnxruntime"


def workload_toml(**values: Any) -> str:
    from jinja2 import Environment, StrictUndefined  # Inf1's image, which imports this module, does not have it

    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    lines = TextWrapper(120, "# ", "# ", break_long_words=False, break_on_hyphens=False)
    environment.filters |= {"toml": toml_value, "comment": lines.fill}
    environment.globals |= {"line": _line, "cpu_runtime": cpu_runtime, "candidates": candidates}
    return environment.from_string(TEMPLATE.read_text("utf-8")).render(values)


def _line(key: str, value: Any, note: str | None) -> str:
    line = f"{key} = {toml_value(value)}"
    return line if note is None else f"{line:<34} # {note}"


def toml_value(value: Any) -> str:
    """Returns a value as TOML: its strings are JSON's, except for a character that JSON does not escape."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml_value(each)}" for key, each in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
