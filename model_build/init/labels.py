"""Turns a user's labels into the keys of a row of evaluation.jsonl, in the checkpoint's own spelling. Pure.

one label, an answer or a text     {"label": "positive"}
several labels                     {"labels": ["sport", "politics"]}
a number or a relevance            {"score": 0.5}
a scored pair                      {"label": "same", "score": 0.9}
spans                              {"entities": [{"label": "PER", "start": 0, "end": 4}]}
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from model_build.init.checkpoint_facts import CheckpointFacts
from model_build.init.examples import ExampleRow
from workloads import UsageError

SHOWN_LABELS = 12


def evaluation_keys(facts: CheckpointFacts, example: ExampleRow) -> dict[str, Any]:
    """Returns the keys for one labelled example. Raises `UsageError` at its line for a label that does not fit."""
    match facts.task, facts.problem_type:
        case "text-ranking", _:
            return {"score": _number(example)}
        case "feature-extraction", _:
            return {} if example.score is None and example.label is None else {"score": _number(example)}
        case "text-classification", "regression":
            return {"score": _number(example)}
        case "text-classification", "multi_label_classification":
            return {"labels": [label_of(example.where, each, facts) for each in _several(example.label)]}
        case "text-pair-scoring", _:
            return {"label": label_of(example.where, example.label, facts), "score": _number(example)}
        case "text-classification", _:
            return {"label": label_of(example.where, example.label, facts)}
        case "token-classification", _:
            return {"entities": _entities(example)}
        case _:
            return {"label": _text(example)}


def label_of(where: str, value: Any, facts: CheckpointFacts) -> str:
    """Returns the checkpoint's own spelling of a user's label: its name in any case, or its number.

    Raises `UsageError` for another.
    """
    text = str(value).strip()
    if text in facts.labels:
        return text
    spelt = [label for label in facts.labels if label.casefold() == text.casefold()]
    if len(spelt) == 1:
        return spelt[0]
    if text.isdecimal() and int(text) < len(facts.labels):
        return facts.labels[int(text)]
    shown = ", ".join(facts.labels[:SHOWN_LABELS]) + (", …" if len(facts.labels) > SHOWN_LABELS else "")
    advice = (
        "Correct it, or leave all labels out: the original's own answers are then the labels."
        if facts.labels_are_named
        else "config.json names none: give the names with --labels, in the order of the head's outputs."
    )
    raise UsageError(f"{where}: the label {text[:60]!r} is none of the checkpoint's: {shown}. {advice}")


def _number(example: ExampleRow) -> float:
    value = example.label if example.score is None else example.score
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not abs(number) < float("inf"):
        raise UsageError(f"{example.where}: the score is {json.dumps(value)[:60]}, which is no number.")
    return number


def _several(label: Any) -> Sequence[Any]:
    """Returns the labels of a list, or of a text between commas, semicolons or bars."""
    return label if isinstance(label, list) else [part for part in re.split(r"[,;|]", str(label)) if part.strip()]


def _text(example: ExampleRow) -> str:
    """Returns an answer or a target text; of SQuAD's several answers, the first."""
    value = example.label
    while isinstance(value, list | dict) and value:
        value = value[0] if isinstance(value, list) else value.get("text")
    if not isinstance(value, str):
        raise UsageError(f"{example.where}: the label is {json.dumps(example.label)[:60]}, which is no text.")
    return value


def _entities(example: ExampleRow) -> list[dict[str, Any]]:
    spans = example.label
    if isinstance(spans, str):
        try:
            spans = json.loads(spans)
        except ValueError:
            spans = None
    wanted = {"label", "start", "end"}
    if not isinstance(spans, list) or not all(isinstance(each, dict) and wanted <= each.keys() for each in spans):
        raise UsageError(
            f"{example.where}: the label is {json.dumps(example.label)[:60]}. Allowed: a list of spans in characters, "
            '[{"label": "PER", "start": 0, "end": 4}].'
        )
    return [{key: each[key] for key in ("label", "start", "end")} for each in spans]
