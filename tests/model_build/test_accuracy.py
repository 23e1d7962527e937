"""Metrics against the tools whose definitions they take: scipy itself, and figures that other tools gave once for the
same seeded rows: scikit-learn 1.9.1 and pytrec_eval-terrier 0.5.11.
"""

import math

import numpy as np
import pytest
from scipy.stats import binomtest, spearmanr

from model_build.accuracy import SMALL, Answered, ScoredAnswer, intervals, measure, wilson
from workloads import METRICS, Entity, Example
from workloads.workload import AGREEMENT


def labelled(right: int, wrong: int) -> list[Answered]:
    rows = ["yes"] * right + ["no"] * wrong
    return [Answered(Example(row={"text": "t"}, label="yes"), ScoredAnswer(text=answer)) for answer in rows]


def scored(wanted: list[float], given: list[float]) -> list[Answered]:
    rows = zip(wanted, given, strict=True)
    return [Answered(Example(row={"text": "t"}, score=one), ScoredAnswer(text="", score=other)) for one, other in rows]


def test_every_metric_that_a_task_has_can_be_measured() -> None:
    everything = Answered(
        Example(row={"text": "a"}, label="a", score=1.0, entities=(Entity(label="X", start=0, end=1),)),
        ScoredAnswer(text="a", score=0.5, labels=frozenset("a"), entities=frozenset({("X", 0, 1)}), to_original=1.0),
    )
    other = everything._replace(answer=ScoredAnswer(text="b", score=0.2), example=Example(row={"text": "a"}, score=0.0))
    for task, names in METRICS.items():
        assert set(measure(names, [everything, other])) == set(names), task
    assert AGREEMENT not in {name for names in METRICS.values() for name in names}


def test_labels_of_rows_with_several_are_scored_as_by_scikit_learn() -> None:
    drawn = np.random.RandomState(5)
    wanted = drawn.rand(30, 4) < 0.4
    given = wanted ^ (drawn.rand(30, 4) < 0.25)
    rows = [
        Answered(
            Example(row={"text": "t"}, labels=tuple("abcd"[at] for at in np.flatnonzero(row))),
            ScoredAnswer(text="", labels=frozenset("abcd"[at] for at in np.flatnonzero(answer))),
        )
        for row, answer in zip(wanted, given, strict=True)
    ]
    assert measure(METRICS["multi_label_classification"], rows) == pytest.approx(
        {"micro_f1": 0.6990291262135923, "macro_f1": 0.691948051948052}
    )


def test_an_entity_counts_where_label_start_and_end_are_right() -> None:
    rows = [
        Answered(
            Example(row={"text": "red shoes 42"}, entities=(Entity(label="SIZE", start=10, end=12),)),
            ScoredAnswer(text="", entities=frozenset(given)),
        )
        for given in ([("SIZE", 10, 12)], [("SIZE", 9, 12), ("COLOUR", 0, 3)], [("COLOUR", 10, 12)])
    ]
    assert measure(["entity_f1"], rows) == pytest.approx({"entity_f1": 2 * 1 / (3 + 4)})


def test_texts_are_ranked_as_by_trec_eval() -> None:
    drawn = np.random.RandomState(11)
    gains = {f"q{query}": drawn.choice(4, size=14, p=[0.6, 0.2, 0.1, 0.1]) for query in range(6)}
    rows = [
        Answered(
            Example(row={"query": query, "text": "t"}, score=float(gain)), ScoredAnswer(text="", score=drawn.rand())
        )
        for query, texts in gains.items()
        for gain in texts
    ]
    alone = Answered(Example(row={"query": "alone", "text": "t"}, score=1.0), ScoredAnswer(text="", score=0.0))
    for measured in (rows, [*rows, alone]):
        assert measure(["ndcg_at_10", "mrr_at_10"], measured) == pytest.approx(
            {"ndcg_at_10": NDCG, "mrr_at_10": RECIPROCAL_RANK}
        )
    assert measure(["ndcg_at_10", "mrr_at_10"], [alone]) == {}, "one text cannot be ranked"


NDCG, RECIPROCAL_RANK = 0.4287038108603898, 0.6166666666666667


def test_ranks_are_correlated_as_by_scipy_equal_values_too() -> None:
    drawn = np.random.RandomState(2)
    wanted, given = drawn.randint(0, 5, 40).astype(float).tolist(), drawn.rand(40).round(1).tolist()
    expected = float(spearmanr(wanted, given).statistic)
    assert measure(["spearman", "cosine_spearman"], scored(wanted, given)) == pytest.approx(
        {"spearman": expected, "cosine_spearman": expected}
    )
    assert measure(["spearman"], scored([1.0], [1.0])) == {}
    assert math.isnan(measure(["pearson"], scored([1.0, 1.0], [1.0, 2.0]))["pearson"])


@pytest.mark.parametrize(("hits", "count"), [(0, 1), (1, 1), (17, 20), (20, 20), (250, 499)])
def test_the_interval_of_a_share_is_scipys(hits: int, count: int) -> None:
    expected = binomtest(hits, count).proportion_ci(0.95, method="wilson")
    assert wilson(hits, count) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_few_rows_have_an_interval_beside_each_metric_and_many_have_none() -> None:
    found = intervals(["accuracy", "macro_f1"], labelled(17, 3))
    assert found["accuracy"] == pytest.approx((0.6396, 0.9476), abs=1e-4)
    low, high = found["macro_f1"]
    assert low < measure(["macro_f1"], labelled(17, 3))["macro_f1"] < high
    assert intervals(["accuracy"], labelled(1, 0))["accuracy"] == pytest.approx((0.2065, 1.0), abs=1e-4)
    assert "macro_f1" not in intervals(["macro_f1"], labelled(4, 0)), "rows that are all right say nothing of it"
    assert intervals(["accuracy"], labelled(SMALL, 0)) == {}
