"""Finds out from a checkpoint's own files what the model does: its task, its labels and its longest input.

The task follows from the class in `architectures`. Where that leaves it open, `ask` is asked: on a terminal a person;
elsewhere it refuses and names --task. Whether a build can read the architecture is for `checkpoint` to say.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_build.checkpoint import broken, encoder_config, sentence_transformers
from model_build.checkpoint.families import FAMILIES
from model_build.checkpoint.files import read_json
from workloads import UsageError

Ask = Callable[[str, Sequence[str]], str]
"""Returns the choice among several for a question. Raises `UsageError` where nobody can be asked."""

TASKS_OF_HEADS = {
    "ForPairScoring": "text-pair-scoring",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForConditionalGeneration": "text2text-generation",
    "MTModel": "text2text-generation",
    "Model": "feature-extraction",
}
"""The task by how the name of the model's class ends, in transformers' words; the first that fits counts."""
TASKS = (*dict.fromkeys(TASKS_OF_HEADS.values()), "text-ranking")
DECODERS = ("ForCausalLM", "LMHeadModel", "DoubleHeadsModel")
ONE_OUTPUT = ("text-ranking", "text-classification")
LABELLED = {"text-classification", "text-pair-scoring", "token-classification"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The facts that the files of a checkpoint tell."""

    architecture: str
    task: str
    problem_type: str | None
    """The problem of a text classification, in transformers' words; None where it is the usual one label of several."""
    labels: tuple[str, ...]
    """In the order of the head's outputs; empty where they are numbers."""
    labels_are_named: bool
    positions: int | None
    """The most tokens that the model has positions for; None if they are relative and have no end."""
    token_limit: int | None
    """The smallest limit in the checkpoint's files: positions, max_seq_length, model_max_length."""
    config: Mapping[str, Any]


def find(folder: Path, task: str | None, labels: Sequence[str], ask: Ask) -> Found:
    """Raises `UsageError` where config.json names no class, one that is not served, or no task."""
    config = read_json(folder / "config.json")
    architecture = _architecture(folder, config)
    done = task or _task(folder, architecture, config, ask)
    if done not in TASKS:
        raise UsageError(f"--task: '{done}' is not served. Allowed: {', '.join(TASKS)}.")
    problem = _problem(folder, done, config)
    has_labels = done in LABELLED and problem != "regression"
    named, are_named = _labels(folder, config, labels) if has_labels else ((), True)
    positions, trained = _positions(config), sentence_transformers.trained_length(folder)
    return Found(
        architecture=architecture,
        task=done,
        problem_type=problem,
        labels=named,
        labels_are_named=are_named,
        positions=positions,
        token_limit=min((limit for limit in (positions, trained) if limit is not None), default=None),
        config=config,
    )


def _architecture(folder: Path, config: Mapping[str, Any]) -> str:
    file, names = folder / "config.json", config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise broken(
            file,
            f"architectures: got {json.dumps(names)}, but it names the model's class, as in "
            '["BertForSequenceClassification"]. Save the model with `save_pretrained(…)`, which writes it.',
        )
    name: str = names[0]
    if name.endswith(DECODERS):
        raise broken(
            file,
            f"architectures: {name} is a decoder alone, which writes on from a prompt, and nothing here serves one. "
            "Served: encoders, and encoders with a decoder (docs/families.md).",
        )
    return name


def _task(folder: Path, architecture: str, config: Mapping[str, Any], ask: Ask) -> str:
    kind = sentence_transformers.kind(folder, config)
    if kind == sentence_transformers.EMBEDDING:  # whatever head was trained with the encoder
        return "feature-extraction"
    head = next((head for head in TASKS_OF_HEADS if architecture.endswith(head)), None)
    if head is None:
        return ask(f"{folder / 'config.json'}: architectures: {architecture} does not tell the task.", TASKS)
    if head == "ForSequenceClassification" and _outputs(config) == 1 and not config.get("problem_type"):
        if kind == sentence_transformers.RERANKER:
            return "text-ranking"
        return ask(
            f"{folder / 'config.json'}: the head has one output and no problem_type, so it may rank texts "
            "(text-ranking) or estimate a number (text-classification).",
            ONE_OUTPUT,
        )
    return TASKS_OF_HEADS[head]


def _problem(folder: Path, task: str, config: Mapping[str, Any]) -> str | None:
    problem = config.get("problem_type")
    if task != "text-classification":
        return None
    if problem == "regression" and _outputs(config) > 1:
        raise broken(
            folder / "config.json",
            f"problem_type: is regression with {_outputs(config)} outputs, and one is served. Save a head for each.",
        )
    if _outputs(config) == 1 and problem != "multi_label_classification":
        return "regression"
    return str(problem) if problem == "multi_label_classification" else None


def _outputs(config: Mapping[str, Any]) -> int:
    """Returns the number of the head's outputs as transformers counts them: two where nothing is said."""
    if isinstance(named := config.get("id2label"), dict) and named:
        return len(named)
    count = config.get("num_labels") or 2
    return count if isinstance(count, int) else 2


def _labels(folder: Path, config: Mapping[str, Any], given: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """Returns the labels in the order of the head's outputs, and whether anybody named them."""
    count = _outputs(config)
    if given:
        if len(given) != count:
            raise UsageError(f"--labels: got {len(given)}, but the head of {folder} has {count} outputs.")
        return tuple(given), True
    named = config.get("id2label")
    if not isinstance(named, dict) or not named:
        return tuple(f"LABEL_{index}" for index in range(count)), False
    if set(named) != {str(index) for index in range(count)}:
        raise broken(
            folder / "config.json",
            f"id2label: its keys are {', '.join(named)}, but the outputs of a head are counted from 0. Give the names "
            "with --labels, in the order of the head's outputs.",
        )
    labels = tuple(str(named[str(index)]) for index in range(count))
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise broken(
            folder / "config.json",
            f"id2label: {json.dumps(twice[0])} is the name of two outputs. Give each a name with --labels, in the "
            "order of the head's outputs.",
        )
    return labels, any(label != f"LABEL_{index}" for index, label in enumerate(labels))


def _positions(config: Mapping[str, Any]) -> int | None:
    positions = config.get("max_position_embeddings")
    if not isinstance(positions, int) or positions < 1:
        return None
    if (family := FAMILIES.get(str(config.get("model_type")))) is not None:
        padding = config.get("pad_token_id")
        known = {**config, "pad_token_id": padding if isinstance(padding, int) else 1}
        return encoder_config.positions(family, known)
    return positions
