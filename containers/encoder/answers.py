"""Turns the compiled model's outputs into answers: one small dict per row, with the same keys in the same order per
task.

Scores are 0 to 1, but for a regression's and a ranking's without activation. START and END count characters (code
points) of the answer's segment; END is excluded. LABELS and ENTITIES are lists, as JSON in a text.

A row may be several windows of a long text (`Encoding.more`). Then its answer is made of theirs: of question answering
the surest; of token classification the entities of all, of which none overlap.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import entities
from .row import Refusal, segment_texts
from .settings import Settings
from .tensors import Encoding, Integers, token_spans, windows

Answer = dict[str, "str | float | int | list[float]"]
Floats = NDArray[np.float64]
Outputs = Mapping[str, NDArray[Any]]

OUTPUTS: dict[str, tuple[tuple[str, str], ...]] = {
    "text-classification": (("LABEL", "TYPE_STRING"), ("SCORE", "TYPE_FP32")),
    "multi_label_classification": (("LABELS", "TYPE_STRING"), ("SCORES", "TYPE_FP32")),
    "regression": (("SCORE", "TYPE_FP32"),),
    "text-pair-scoring": (("DUPLICATE_SCORE", "TYPE_FP32"), ("RELATION", "TYPE_STRING")),
    "text-ranking": (("SCORE", "TYPE_FP32"),),
    "token-classification": (("ENTITIES", "TYPE_STRING"),),
    "feature-extraction": (("EMBEDDING", "TYPE_FP32"),),
    "question-answering": (
        ("ANSWER", "TYPE_STRING"),
        ("SCORE", "TYPE_FP32"),
        ("START", "TYPE_INT64"),
        ("END", "TYPE_INT64"),
    ),
}
"""The answer's keys by `Settings.kind`, with their types in config.pbtxt."""
VECTORS = frozenset({"SCORES", "EMBEDDING"})
"""The keys with several numbers for a row: one for each label, or for each dimension. The others have one value."""


def answer(
    settings: Settings, outputs: Outputs, encodings: Sequence[Encoding], rows: Sequence[Mapping[str, object]]
) -> list[Answer]:
    """Returns one answer for each of `rows`, which became `encodings` and then the batch behind `outputs`."""
    if not settings.per_token:
        return by_row(labels(settings, outputs))
    read = (segment_texts(row, settings.segments[-1:]) for row in rows)
    texts = [segments[0] for segments in read if not isinstance(segments, Refusal)]
    spans = token_spans(windows(encodings), outputs[settings.graph_outputs[0]].shape[1])
    return by_row(pieces(settings, outputs, spans, texts, [1 + len(encoding.more) for encoding in encodings]))


def labels(settings: Settings, outputs: Outputs) -> dict[str, list[Any]]:
    """Returns the answers of the tasks that answer for a text as a whole, by key."""
    if settings.task == "feature-extraction":
        return {"EMBEDDING": outputs["embedding"].astype(np.float64).tolist()}
    logits = outputs["logits"].astype(np.float64)
    match settings.kind:
        case "multi_label_classification":
            shares = _sigmoid(logits)
            chosen = [[settings.labels[index] for index in np.flatnonzero(row >= settings.threshold)] for row in shares]
            return {"LABELS": list(map(_json, chosen)), "SCORES": shares.tolist()}
        case "regression":
            return {"SCORE": logits[:, 0].tolist()}
        case "text-ranking":
            scores = logits if settings.activation == "none" else _sigmoid(logits)
            return {"SCORE": scores[:, 0].tolist()}
    best = logits.argmax(axis=1)
    names = [settings.labels[index] for index in best]
    if settings.task == "text-pair-scoring":
        return {"DUPLICATE_SCORE": outputs["score"].astype(np.float64).tolist(), "RELATION": names}
    return {"LABEL": names, "SCORE": np.take_along_axis(_softmax(logits), best[:, None], axis=1)[:, 0].tolist()}


def pieces(
    settings: Settings, outputs: Outputs, spans: Integers, texts: Sequence[str], counts: Sequence[int]
) -> dict[str, list[Any]]:
    """Returns the answers that are pieces of the rows' `texts`, by key. Row for row, `counts` are the windows.

    `spans`, [windows, length, 2 or 3], is -1 where no answer can begin or end (`Encoding.spans`).
    """
    own = [slice(*bounds) for bounds in pairwise(np.cumsum([0, *counts]).tolist())]
    if settings.task == "question-answering":
        return _answered(settings, outputs, spans, texts, own)
    shares = _softmax(outputs["logits"].astype(np.float64))
    found = [
        entities.merged(
            [
                entities.find(shares[at], spans[at], settings.labels, settings.aggregation)
                for at in range(len(spans))[row]
            ]
        )
        for row in own
    ]
    return {"ENTITIES": [_json(entities.described(each, text)) for each, text in zip(found, texts, strict=True)]}


def _answered(
    settings: Settings, outputs: Outputs, characters: Integers, contexts: Sequence[str], own: Sequence[slice]
) -> dict[str, list[Any]]:
    """Returns the answers of question answering. Of several windows, equal texts are one answer with the sum of their
    scores, and the surest is given: transformers' pipeline (4.57) does so, and a sum may be over 1.
    """
    allowed = characters[:, :, 0] >= 0
    starts, ends = (outputs[name].astype(np.float64) for name in ("start_logits", "end_logits"))
    inside = [np.where(allowed, logits, -np.inf) for logits in (starts, ends)]
    first, last = best_span(inside[0], inside[1], settings.max_answer_tokens)
    counted = allowed.copy()
    if settings.stride is not None:
        # A model that was trained on windows says by its first token that the answer is in none of this one's.
        counted[:, 0] = True
    window = np.arange(len(first))
    shares = [_softmax(np.where(counted, logits, -np.inf)) for logits in (starts, ends)]
    scores = (shares[0][window, first] * shares[1][window, last]).tolist()
    begins, stops = characters[window, first, 0].tolist(), characters[window, last, 1].tolist()
    found: dict[str, list[Any]] = {"ANSWER": [], "SCORE": [], "START": [], "END": []}
    for context, row in zip(contexts, own, strict=True):
        answers: dict[str, list[Any]] = {}
        for begin, stop, score in zip(begins[row], stops[row], scores[row], strict=True):
            answers.setdefault(context[begin:stop].lower(), [0.0, begin, stop])[0] += score
        score, begin, stop = max(answers.values(), key=lambda each: each[0])
        for key, value in zip(found, (context[begin:stop], score, begin, stop), strict=True):
            found[key].append(value)
    return found


def best_span(start: Floats, end: Floats, max_tokens: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns the first and last token of each row's span with the largest start + end, the first of equal spans.

    A logit of -inf excludes a token. For each first token the best last one is the largest `end` among the next
    `max_tokens`.
    """
    fill = np.full((len(end), max_tokens - 1), -np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([end, fill], axis=1), max_tokens, axis=1)
    first = (start + windows.max(axis=2)).argmax(axis=1)
    return first, first + windows[np.arange(len(first)), first].argmax(axis=1)


def by_row(columns: Mapping[str, Sequence[Any]]) -> list[Answer]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _softmax(logits: Floats) -> Floats:
    """Returns the shares of the last axis."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Floats = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return shares


def _sigmoid(logits: Floats) -> Floats:
    shares: Floats = 1 / (1 + np.exp(-logits))
    return shares


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
