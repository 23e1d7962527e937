"""Turns the compiled model's outputs into answers: one small dict per row, with the same keys in the same order per
task.

Scores are 0 to 1. START and END count characters (code points) of the answer's segment; END is excluded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .row import Refusal, segment_texts
from .settings import Settings
from .tensors import Encoding, Integers, answer_spans

Answer = dict[str, str | float | int]
Floats = NDArray[np.float64]
Outputs = Mapping[str, NDArray[Any]]

OUTPUTS: dict[str, tuple[tuple[str, str], ...]] = {
    "text-classification": (("LABEL", "TYPE_STRING"), ("SCORE", "TYPE_FP32")),
    "text-pair-scoring": (("DUPLICATE_SCORE", "TYPE_FP32"), ("RELATION", "TYPE_STRING")),
    "question-answering": (
        ("ANSWER", "TYPE_STRING"),
        ("SCORE", "TYPE_FP32"),
        ("START", "TYPE_INT64"),
        ("END", "TYPE_INT64"),
    ),
}
"""The answer's keys by task, with their types in config.pbtxt."""


def answer(
    settings: Settings, outputs: Outputs, encodings: Sequence[Encoding], rows: Sequence[Mapping[str, object]]
) -> list[Answer]:
    """Returns one answer for each of `rows`, which became `encodings` and then the batch behind `outputs`."""
    if settings.task != "question-answering":
        return by_row(labels(settings, outputs))
    texts = (segment_texts(row, settings.segments[1:]) for row in rows)
    contexts = [segments[0] for segments in texts if not isinstance(segments, Refusal)]
    return by_row(spans(settings, outputs, answer_spans(encodings, outputs["start_logits"].shape[1]), contexts))


def labels(settings: Settings, outputs: Outputs) -> dict[str, list[Any]]:
    """Returns the answers of classification and pair scoring, by key."""
    logits = outputs["logits"].astype(np.float64)
    best = logits.argmax(axis=1)
    names = [settings.labels[index] for index in best]
    if settings.task == "text-pair-scoring":
        return {"DUPLICATE_SCORE": outputs["score"].astype(np.float64).tolist(), "RELATION": names}
    return {"LABEL": names, "SCORE": np.take_along_axis(_softmax(logits), best[:, None], axis=1)[:, 0].tolist()}


def spans(settings: Settings, outputs: Outputs, characters: Integers, contexts: Sequence[str]) -> dict[str, list[Any]]:
    """Returns the answers of question answering, by key.

    `characters`, [rows, length, 2], is -1 where no answer can begin or end.
    """
    allowed = characters[:, :, 0] >= 0
    start = np.where(allowed, outputs["start_logits"].astype(np.float64), -np.inf)
    end = np.where(allowed, outputs["end_logits"].astype(np.float64), -np.inf)
    first, last = best_span(start, end, settings.max_answer_tokens)
    row = np.arange(len(contexts))
    starts, ends = characters[row, first, 0].tolist(), characters[row, last, 1].tolist()
    return {
        "ANSWER": [context[begin:stop] for context, begin, stop in zip(contexts, starts, ends, strict=True)],
        "SCORE": (_softmax(start)[row, first] * _softmax(end)[row, last]).tolist(),
        "START": starts,
        "END": ends,
    }


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
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Floats = exponentials / exponentials.sum(axis=1, keepdims=True)
    return shares
