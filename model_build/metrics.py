"""Measures how well a model does its task on labelled examples. Pure.

Each metric is a function of the answers; `measure` has those of a task, under the names of `workloads.METRICS`.
F1 of answer spans is SQuAD's (Rajpurkar et al., 2016) but for its removal of articles and punctuation.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from workloads import METRICS


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """One example with its label and the model's answer; a scored pair also has both scores."""

    text: str
    label: str
    answer: str
    score: float | None = None
    scored: float | None = None


Metric = Callable[[Sequence[Answered]], float]


def measure(task: str, answers: Sequence[Answered]) -> dict[str, float]:
    """Returns every metric of the task, by name."""
    return {name: _METRICS[name](answers) for name in METRICS[task]}


def exact_match(answers: Sequence[Answered]) -> float:
    """Returns the share answered with the label itself, character by character."""
    return fmean(each.answer == each.label for each in answers)


def unchanged_rate(answers: Sequence[Answered]) -> float:
    """Returns the share of the texts that were right already and came back unchanged; NaN when no text was right."""
    right = [each for each in answers if each.text == each.label]
    return fmean(each.answer == each.text for each in right) if right else math.nan


def macro_f1(answers: Sequence[Answered]) -> float:
    """Returns the F1 of each label, averaged: a rare label counts like a common one."""
    return fmean(_label_f1(answers, label) for label in sorted({each.label for each in answers}))


def span_f1(answers: Sequence[Answered]) -> float:
    """Returns the mean overlap of an answer's words with its label's."""
    return fmean(_words_f1(each.answer, each.label) for each in answers)


def score_correlation(answers: Sequence[Answered]) -> float:
    """Returns Pearson's correlation of the model's scores with the labelled ones; NaN when either never varies."""
    pairs = [(each.score, each.scored) for each in answers if each.score is not None and each.scored is not None]
    means = [fmean(column) for column in zip(*pairs, strict=True)]
    wanted, given = [a - means[0] for a, _ in pairs], [b - means[1] for _, b in pairs]
    norm = math.sqrt(math.fsum(a * a for a in wanted) * math.fsum(b * b for b in given))
    return math.fsum(a * b for a, b in zip(wanted, given, strict=True)) / norm if norm else math.nan


def _label_f1(answers: Sequence[Answered], label: str) -> float:
    hits = sum(each.answer == each.label == label for each in answers)
    total = sum(each.answer == label for each in answers) + sum(each.label == label for each in answers)
    return 2 * hits / total


def _words_f1(answer: str, label: str) -> float:
    given, wanted = answer.lower().split(), label.lower().split()
    common = sum((Counter(given) & Counter(wanted)).values())
    return 2 * common / (len(given) + len(wanted)) if common else float(given == wanted)


_METRICS: dict[str, Metric] = {
    "accuracy": exact_match,
    "exact_match": exact_match,
    "f1": span_f1,
    "macro_f1": macro_f1,
    "score_correlation": score_correlation,
    "unchanged_rate": unchanged_rate,
}
