"""Metrics of answers against the labels of evaluation.jsonl, with intervals for few rows. Pure.

The names are those of `workloads.METRICS`. Sources of the definitions:

    f1                  SQuAD's overlap of words (Rajpurkar et al., 2016), but articles and punctuation count as well
    entity_f1           seqeval's micro average: an entity counts where label, start and end are right
    micro_f1, macro_f1  scikit-learn's f1_score over the labels that a row has
    ndcg_at_10          trec_eval's ndcg_cut.10: the gain is the score itself, discounted by log2 of the rank + 1
    mrr_at_10           one by the rank of the first text of a query with a score above 0; 0 below the tenth
    spearman            scipy's spearmanr: Pearson's correlation of the ranks, equal values sharing theirs
    cosine_spearman     the same of the cosines of pairs with their labelled scores, as MTEB has it for STS
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads import Example

SMALL = 500
"""Metrics of fewer examples have an interval."""
RESAMPLES = 400
Z_95 = 1.959963984540054
"""The normal quantile of a 95 % interval."""
CUT = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredAnswer:
    """A model's answer for people, and its values for metrics."""

    text: str
    score: float | None = None
    """The score of a pair, a regression or a ranking; of an embedding, its cosine with the other text's."""
    labels: frozenset[str] = frozenset()
    entities: frozenset[tuple[str, int, int]] = frozenset()
    """Label, start and end of each."""
    to_original: float | None = None
    """The cosine of an embedding with the original's."""


class Answered(NamedTuple):
    """An example with a model's answer."""

    example: Example
    answer: ScoredAnswer

    @property
    def right(self) -> bool:
        """Whether the answer is the label itself, character by character."""
        return self.answer.text == self.example.label


Metric = Callable[[Sequence[Answered]], float | None]
"""A metric of a model's answers; None if the examples cannot measure it."""
Interval = tuple[float, float]


def measure(metrics: Sequence[str], answers: Sequence[Answered]) -> dict[str, float]:
    """Returns those of the metrics that the examples can measure, by name."""
    measured = {name: _METRICS[name](answers) for name in metrics if name in _METRICS}
    return {name: value for name, value in measured.items() if value is not None}


def intervals(metrics: Sequence[str], answers: Sequence[Answered]) -> dict[str, Interval]:
    """Returns the 95 % interval of each metric, for fewer than SMALL examples.

    A share has Wilson's interval. Any other metric has the middle 95 % of its values on resampled rows, and none if
    these do not vary. Ranked texts are resampled by query.
    """
    if len(answers) >= SMALL:
        return {}
    found = {name: _interval(name, answers) for name in metrics if name in _METRICS}
    return {name: interval for name, interval in found.items() if interval is not None}


def wilson(hits: int, count: int) -> Interval:
    """Returns the 95 % score interval of a share (Wilson, 1927)."""
    share, spread = hits / count, Z_95**2 / count
    middle = share + spread / 2
    half = Z_95 * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


def _interval(name: str, answers: Sequence[Answered]) -> Interval | None:
    if (hits := _HITS.get(name)) is not None:
        counted = hits(answers)
        return wilson(sum(counted), len(counted)) if counted else None
    metric, random = _METRICS[name], Random(0)
    groups = list(_by_query(answers).values()) if name in _OF_QUERIES else [[each] for each in answers]
    drawn = (
        metric([each for group in random.choices(groups, k=len(groups)) for each in group]) for _ in range(RESAMPLES)
    )
    values = sorted(value for value in drawn if value is not None and not math.isnan(value))
    if not values or values[0] == values[-1]:
        return None
    low, high = np.quantile(values, (0.025, 0.975)).tolist()
    return low, high


def _correct(answers: Sequence[Answered]) -> list[bool]:
    return [each.right for each in answers]


def _unchanged(answers: Sequence[Answered]) -> list[bool]:
    """Returns for each text that needs no change whether it came back unchanged."""
    return [each.right for each in answers if each.example.label == each.example.row.get("text")]


def macro_f1(answers: Sequence[Answered]) -> float:
    """Returns the F1 of each label that a row has, averaged: a rare label counts like a common one."""
    hits, total, wanted_at_all = Counter[str](), Counter[str](), set[str]()
    for wanted, given in map(_labels, answers):
        hits.update(wanted & given)
        total.update(wanted)
        total.update(given)
        wanted_at_all |= wanted
    return fmean(2 * hits[label] / total[label] for label in sorted(wanted_at_all)) if wanted_at_all else math.nan


def micro_f1(answers: Sequence[Answered]) -> float | None:
    """Returns the F1 over all labels of all rows, so that a common label counts more; None where there is none."""
    return _f1(list(map(_labels, answers)))


def entity_f1(answers: Sequence[Answered]) -> float | None:
    """Returns the F1 over all entities of all texts; None where there is none."""
    return _f1(
        [
            ({(own.label, own.start, own.end) for own in example.entities}, answer.entities)
            for example, answer in answers
        ]
    )


def span_f1(answers: Sequence[Answered]) -> float:
    """Returns the mean overlap of an answer's words with its label's."""
    return fmean(_words_f1(each.answer.text, each.example.label) for each in answers)


def correlation(answers: Sequence[Answered], *, ranked: bool = False) -> float | None:
    """Returns Pearson's correlation of the model's scores with the labelled ones, or Spearman's, which is of the ranks.

    NaN when either never varies; None for fewer than two rows.
    """
    if (scores := _scores(answers)) is None:
        return None
    return _correlation(*(map(_ranks, scores) if ranked else scores))


def ndcg(answers: Sequence[Answered]) -> float | None:
    """Returns the mean over the queries that have a relevant text and another one; None where there is none."""
    queries = _ranked(answers)
    return (
        fmean(_discounted(gains) / _discounted(sorted(gains, reverse=True)) for gains in queries) if queries else None
    )


def reciprocal_rank(answers: Sequence[Answered]) -> float | None:
    """Returns the mean over the same queries as `ndcg`."""
    queries = _ranked(answers)
    firsts = [next((1 / rank for rank, gain in enumerate(gains[:CUT], 1) if gain > 0), 0.0) for gains in queries]
    return fmean(firsts) if firsts else None


def cosine_to_original(answers: Sequence[Answered]) -> float:
    """Returns the mean cosine of the embeddings with the original's, which is 1 for the original itself."""
    return fmean(each.answer.to_original or 0.0 for each in answers)


def _f1(pairs: Sequence[tuple[Set[Any], Set[Any]]]) -> float | None:
    """Returns the F1 of expected and given items."""
    hits = sum(len(wanted & given) for wanted, given in pairs)
    total = sum(len(wanted) + len(given) for wanted, given in pairs)
    return 2 * hits / total if total else None


def _labels(answered: Answered) -> tuple[Set[str], Set[str]]:
    """Returns a row's own labels and the answer's; of a task with one label for each row, that one."""
    example, answer = answered
    if example.label:
        return {example.label}, {answer.text}
    return set(example.labels), answer.labels


def _words_f1(answer: str, label: str) -> float:
    given, wanted = answer.lower().split(), label.lower().split()
    common = sum((Counter(given) & Counter(wanted)).values())
    return 2 * common / (len(given) + len(wanted)) if common else float(given == wanted)


def _scores(answers: Sequence[Answered]) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Returns the labelled and the model's scores of the rows that have both, or None where fewer than two have."""
    pairs = [
        (each.example.score, each.answer.score)
        for each in answers
        if each.example.score is not None and each.answer.score is not None
    ]
    if len(pairs) < 2:
        return None
    wanted, given = np.array(pairs, np.float64).T
    return wanted, given


def _correlation(wanted: NDArray[np.float64], given: NDArray[np.float64]) -> float:
    wanted, given = wanted - wanted.mean(), given - given.mean()
    norm = math.sqrt(float(wanted @ wanted) * float(given @ given))
    return float(wanted @ given) / norm if norm else math.nan


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the rank of each value; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    shared: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return shared


def _by_query(answers: Sequence[Answered]) -> Mapping[str, list[Answered]]:
    """Returns the texts of each query. A row's first field is the query, or the first of several."""
    queries: dict[str, list[Answered]] = {}
    for each in answers:
        queries.setdefault(next(iter(each.example.row.values())), []).append(each)
    return queries


def _ranked(answers: Sequence[Answered]) -> list[list[float]]:
    """Returns the labelled scores of each query's texts, in the order that the model's scores give them."""
    found = []
    for texts in _by_query(answers).values():
        ordered = sorted(texts, key=lambda each: -(each.answer.score or 0.0))
        gains = [each.example.score or 0.0 for each in ordered]
        if len(gains) > 1 and max(gains) > 0:
            found.append(gains)
    return found


def _discounted(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains[:CUT], 1))


def _share(hits: Callable[[Sequence[Answered]], list[bool]], answers: Sequence[Answered]) -> float | None:
    counted = hits(answers)
    return fmean(counted) if counted else None


_HITS: dict[str, Callable[[Sequence[Answered]], list[bool]]] = {
    "accuracy": _correct,
    "exact_match": _correct,
    "unchanged_rate": _unchanged,
}
"""The metrics that are a share of rows, with the counted property."""
_OF_QUERIES = ("ndcg_at_10", "mrr_at_10")
_METRICS: dict[str, Metric] = {
    **{name: partial(_share, hits) for name, hits in _HITS.items()},
    "f1": span_f1,
    "macro_f1": macro_f1,
    "micro_f1": micro_f1,
    "score_correlation": correlation,
    "pearson": correlation,
    "spearman": partial(correlation, ranked=True),
    "cosine_spearman": partial(correlation, ranked=True),
    "entity_f1": entity_f1,
    "ndcg_at_10": ndcg,
    "mrr_at_10": reciprocal_rank,
    "cosine_to_original": cosine_to_original,
}
