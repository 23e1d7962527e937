"""Reads the task, the labels and the longest input of a model from its checkpoint's files.

The task follows from the class in `architectures`, or from --task if that is ambiguous.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_build.checkpoint import broken, encoder_config, sentence_transformers
from model_build.checkpoint.families import FAMILIES
from model_build.checkpoint.files import read_json
from workloads import UsageError

TASKS_OF_HEADS = {
    "ForPairScoring": "text-pair-scoring",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForConditionalGeneration": "text2text-generation",
    "MTModel": "text2text-generation",
    "Model": "feature-extraction",
}
"""The task by the end of the class name; the first match counts."""
TASKS = (*dict.fromkeys(TASKS_OF_HEADS.values()), "text-ranking")
DECODERS = ("ForCausalLM", "LMHeadModel", "DoubleHeadsModel")
LABELLED = {"text-classification", "text-pair-scoring", "token-classification"}


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointFacts:
    """The facts in the files of a checkpoint."""

    architecture: str
    task: str
    problem_type: str | None
    """The problem of a text classification in transformers' terms; None for the usual choice of one label."""
    labels: tuple[str, ...]
    """In the order of the head's outputs; empty if the outputs are numbers."""
    labels_are_named: bool
    positions: int | None
    """The number of tokens that the model has positions for; None if positions are relative."""
    token_limit: int | None
    """The smallest limit in the checkpoint's files: positions, max_seq_length, model_max_length."""
    config: Mapping[str, Any]


def find(folder: Path, task: str | None, labels: Sequence[str]) -> CheckpointFacts:
    """Raises `UsageError` if config.json names no class or one that is not served, or if no task follows."""
    config = read_json(folder / "config.json")
    architecture = _architecture(folder, config)
    task = task or _task(folder, architecture, config)
    problem = _problem(folder, task, config)
    has_labels = task in LABELLED and problem != "regression"
    named, are_named = _labels(folder, config, labels) if has_labels else ((), True)
    positions, trained = _positions(config), sentence_transformers.trained_length(folder)
    return CheckpointFacts(
        architecture=architecture,
        task=task,
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
            f"architectures: {name} is a decoder without an encoder, which no target serves. Served: encoders, and "
            "encoders with a decoder (docs/families.md).",
        )
    return name


def _task(folder: Path, architecture: str, config: Mapping[str, Any]) -> str:
    kind = sentence_transformers.kind(folder, config)
    if kind == sentence_transformers.EMBEDDING:  # whatever head was trained with the encoder
        return "feature-extraction"
    head = next((head for head in TASKS_OF_HEADS if architecture.endswith(head)), None)
    if head is None:
        raise _ambiguous(folder, f"architectures: {architecture} does not determine the task.", TASKS)
    if head == "ForSequenceClassification" and _outputs(config) == 1 and not config.get("problem_type"):
        if kind == sentence_transformers.RERANKER:
            return "text-ranking"
        problem = "the head has one output and no problem_type, so it may rank texts or estimate a number."
        raise _ambiguous(folder, problem, ("text-ranking", "text-classification"))
    return TASKS_OF_HEADS[head]


def _ambiguous(folder: Path, problem: str, tasks: Sequence[str]) -> UsageError:
    return UsageError(f"{folder / 'config.json'}: {problem} Add --task {' or --task '.join(tasks)}.")


def _problem(folder: Path, task: str, config: Mapping[str, Any]) -> str | None:
    problem = config.get("problem_type")
    if task != "text-classification":
        return None
    if problem == "regression" and _outputs(config) > 1:
        raise broken(
            folder / "config.json",
            f"problem_type: is regression with {_outputs(config)} outputs; one is served. Save a head for each.",
        )
    if _outputs(config) == 1 and problem != "multi_label_classification":
        return "regression"
    return str(problem) if problem == "multi_label_classification" else None


def _outputs(config: Mapping[str, Any]) -> int:
    """Returns the number of the head's outputs as transformers counts them: two by default."""
    if isinstance(named := config.get("id2label"), dict) and named:
        return len(named)
    count = config.get("num_labels") or 2
    return count if isinstance(count, int) else 2


def _labels(folder: Path, config: Mapping[str, Any], given: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """Returns the labels in the order of the head's outputs, and whether they have names."""
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
