"""The gate's arithmetic and its words."""

import math
from typing import Any

import pytest

from model_build.errors import GateFailed
from model_build.parity import Comparison, check_parity, check_quality, report
from workloads.workload import Parity, Quality


def comparison(**changes: Any) -> Comparison:
    values: dict[str, Any] = {
        "text": "shoes",
        "label": "shoes",
        "original": "shoes",
        "compiled": "shoes",
        "identical": True,
        "max_logit_difference": 0.0,
        "mean_logit_difference": 0.0,
        "logits": 10,
    }
    return Comparison(**values | changes)


RIGHT = comparison()
CORRECTED = comparison(text="sheos")
CHANGED = comparison(compiled="shoe", identical=False, max_logit_difference=0.5)
LOST = comparison(text="shose", compiled="hose", identical=False, max_logit_difference=2.0)


def test_exact_match_counts_all_pairs_and_left_alone_only_the_correct_ones() -> None:
    figures = report([RIGHT, CORRECTED, CHANGED, LOST])
    assert (figures.examples, figures.identical_sequences) == (4, 2)
    assert (figures.original.exact_match, figures.compiled.exact_match) == (1.0, 0.5)
    assert (figures.original.left_alone, figures.compiled.left_alone) == (1.0, 0.5)


def test_the_mean_is_over_logits_not_over_examples() -> None:
    short = comparison(mean_logit_difference=1.0, max_logit_difference=1.0, logits=10)
    long = comparison(mean_logit_difference=0.0, logits=30)
    figures = report([short, long])
    assert (figures.mean_logit_difference, figures.max_logit_difference) == (0.25, 1.0)


def test_the_same_answers_pass() -> None:
    comparisons = [RIGHT, CORRECTED]
    check_quality(report(comparisons), Quality(min_exact_match=1.0, min_left_alone=1.0), comparisons)
    check_parity(report(comparisons), Parity(max_logit_difference=1e-9), comparisons)


def test_a_drop_that_the_workload_allows_passes() -> None:
    comparisons = [RIGHT, CORRECTED, CHANGED, LOST]
    check_parity(report(comparisons), Parity(max_exact_match_drop=0.5), comparisons)


def test_differing_sequences_are_named_the_worst_first() -> None:
    comparisons = [RIGHT, CORRECTED, CHANGED, LOST]
    with pytest.raises(GateFailed) as caught:
        check_parity(report(comparisons), Parity(max_logit_difference=1e-3), comparisons)
    assert caught.value.exit_code == 1
    assert str(caught.value) == (
        "The compiled model differs from the original on evaluation.jsonl:\n"
        "- 2 of 4 token sequences differ, none may (parity.max_exact_match_drop is 0).\n"
        "- exact match drops by 0.5000, at most 0.0 is allowed (parity.max_exact_match_drop).\n"
        "- the largest logit difference is 2, at most 0.001 is allowed (parity.max_logit_difference).\n"
        "The 2 worst of 2 examples:\n"
        "  'shose': expected 'shoes', got 'hose'\n"
        "  'shoes': expected 'shoes', got 'shoe'\n"
        "Build again, or for a coarser precision allow more in the target's parity in workload.toml."
    )


def test_logits_that_are_not_numbers_fail_wherever_they_are() -> None:
    comparisons = [RIGHT, comparison(max_logit_difference=math.nan, mean_logit_difference=math.nan), RIGHT]
    with pytest.raises(GateFailed, match=r"\n- some logits are not numbers \(NaN\)\.\n"):
        check_parity(report(comparisons), Parity(max_exact_match_drop=1.0), comparisons)


def test_an_original_that_is_not_good_enough_is_not_compiled() -> None:
    wrong = comparison(text="sheos", original="shoe", compiled="shoe")
    comparisons = [RIGHT, wrong]
    with pytest.raises(GateFailed) as caught:
        check_quality(report(comparisons), Quality(min_exact_match=0.85, min_left_alone=0.95), comparisons)
    assert str(caught.value) == (
        "The original model is not good enough on evaluation.jsonl:\n"
        "- exact_match is 0.5000, at least 0.85 is required (quality.min_exact_match).\n"
        "The 1 worst of 1 examples:\n"
        "  'sheos': expected 'shoes', got 'shoe'\n"
        "Train the checkpoint further, or lower the minimum in workload.toml."
    )
