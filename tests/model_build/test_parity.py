"""The gate: its arithmetic, its words, and the search for layers to keep in fp32."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_build import parity, render
from model_build.accuracy import ScoredAnswer
from model_build.fp32_layers import smallest
from model_build.parity import GateFailed, GuidedCheck, ParityComparison, check_parity, check_quality
from tests.builders import failure_of, message_of
from workloads import Example, GuidedReport, Parity, ParityReport

METRICS = ("exact_match", "unchanged_rate")


def report(comparisons: list[ParityComparison]) -> ParityReport:
    return parity.report(METRICS, comparisons)


def comparison(
    *, text: str = "shoes", label: str = "shoes", original: str = "shoes", compiled: str = "shoes", **changes: Any
) -> ParityComparison:
    values: dict[str, Any] = {
        "example": Example(row={"text": text}, label=label),
        "original": ScoredAnswer(text=original),
        "compiled": ScoredAnswer(text=compiled),
        "identical": True,
        "max_logit_difference": 0.0,
        "mean_logit_difference": 0.0,
        "logits": 10,
    }
    return ParityComparison(**values | changes)


RIGHT = comparison()
CORRECTED = comparison(text="sheos")
CHANGED = comparison(compiled="shoe", identical=False, max_logit_difference=0.5)
LOST = comparison(text="shose", compiled="hose", identical=False, max_logit_difference=2.0)


def test_exact_match_counts_all_pairs_and_the_unchanged_rate_only_the_correct_ones() -> None:
    figures = report([RIGHT, CORRECTED, CHANGED, LOST])
    assert (figures.examples, figures.identical_answers) == (4, 2)
    assert figures.original == {"exact_match": 1.0, "unchanged_rate": 1.0}
    assert figures.compiled == {"exact_match": 0.5, "unchanged_rate": 0.5}


def test_the_mean_is_over_logits_not_over_examples() -> None:
    short = comparison(mean_logit_difference=1.0, max_logit_difference=1.0, logits=10)
    long = comparison(mean_logit_difference=0.0, logits=30)
    figures = report([short, long])
    assert (figures.mean_logit_difference, figures.max_logit_difference) == (0.25, 1.0)


def test_the_same_answers_pass() -> None:
    comparisons = [RIGHT, CORRECTED]
    check_quality(report(comparisons), {"min_exact_match": 1.0, "min_unchanged_rate": 1.0}, comparisons)
    check_parity(report(comparisons), Parity(max_logit_difference=1e-9), comparisons)


def test_a_drop_that_the_workload_allows_passes() -> None:
    comparisons = [RIGHT, CORRECTED, CHANGED, LOST]
    check_parity(report(comparisons), Parity(max_metric_drop=0.5), comparisons)


def test_differing_sequences_are_named_the_worst_first() -> None:
    comparisons = [RIGHT, CORRECTED, CHANGED, LOST]
    message = (
        "The compiled model differs from the original on evaluation.jsonl:\n"
        "- 2 of 4 answers differ, none may (parity.max_metric_drop is 0).\n"
        "- exact_match drops by 0.5000, at most 0.0 is allowed (parity.max_metric_drop).\n"
        "- unchanged_rate drops by 0.5000, at most 0.0 is allowed (parity.max_metric_drop).\n"
        "- the largest logit difference is 2, at most 0.001 is allowed (parity.max_logit_difference).\n"
        "The 2 worst of 2 examples:\n"
        "  'shose': expected 'shoes', got 'hose'\n"
        "  'shoes': expected 'shoes', got 'shoe'\n"
        "Build again, or for a coarser precision allow more in the target's parity in workload.toml."
    )
    limits = Parity(max_logit_difference=1e-3)
    assert failure_of(GateFailed, check_parity, report(comparisons), limits, comparisons) == (message, 1)


def test_the_mean_has_a_limit_of_its_own() -> None:
    comparisons = [comparison(mean_logit_difference=0.25, max_logit_difference=0.5)]
    with pytest.raises(GateFailed, match=r"- the mean logit difference is 0.25, at most 0.1 is allowed"):
        check_parity(report(comparisons), Parity(max_mean_logit_difference=0.1), comparisons)


def test_guided_answers_that_are_not_greedys_fail_and_the_tokens_of_a_pass_are_printed() -> None:
    right, other = GuidedCheck(tokens=10, passes=2, same=True), GuidedCheck(tokens=5, passes=3, same=False)
    figures = report([comparison(guided=right), comparison(guided=right)])
    assert "guided decoding       5.00 tokens a pass, 0 answers differ from greedy" in render.text(
        "verify", figures.model_dump()
    )
    comparisons = [comparison(guided=right), comparison(guided=other)]
    assert report(comparisons).guided == GuidedReport(tokens_per_pass=3.0, differing_answers=1)
    reason = r'- 1 guided answers differ from greedy decoding\'s, none may: set model.generation.guided = "off"\.'
    with pytest.raises(GateFailed, match=reason):
        check_parity(report(comparisons), Parity(max_metric_drop=1.0), comparisons)


def test_logits_that_are_not_numbers_fail_wherever_they_are() -> None:
    comparisons = [RIGHT, comparison(max_logit_difference=math.nan, mean_logit_difference=math.nan), RIGHT]
    with pytest.raises(GateFailed, match=r"\n- some logits are not numbers \(NaN\)\.\n"):
        check_parity(report(comparisons), Parity(max_metric_drop=1.0), comparisons)


def test_an_original_that_is_not_good_enough_is_not_compiled() -> None:
    wrong = comparison(text="sheos", original="shoe", compiled="shoe")
    comparisons = [RIGHT, wrong]
    minima = {"min_exact_match": 0.85, "min_unchanged_rate": 0.95}
    assert message_of(GateFailed, check_quality, report(comparisons), minima, comparisons) == (
        "The original model is not good enough on evaluation.jsonl:\n"
        "- exact_match is 0.5000, at least 0.85 is required (quality.min_exact_match).\n"
        "The 1 worst of 1 examples:\n"
        "  'sheos': expected 'shoes', got 'shoe'\n"
        "Train the checkpoint further, or lower the minimum in workload.toml."
    )


def test_an_embeddings_difference_is_one_of_vectors() -> None:
    figures = ParityReport(
        examples=1,
        identical_answers=1,
        max_logit_difference=0.5,
        mean_logit_difference=0.25,
        original={"cosine_to_original": 1.0},
        compiled={"cosine_to_original": 1.0},
    )
    assert render.text("verify", figures.model_dump()).splitlines()[1] == (
        "vector difference     0.5 at most, 0.25 on average"
    )
    assert parity.differences(figures, Parity(max_logit_difference=0.1)) == [
        "the largest vector difference is 0.5, at most 0.1 is allowed (parity.max_logit_difference)."
    ]


LAYERS = [f"layers.{i}" for i in range(100)]
layer_lists = st.lists(st.text("abc", min_size=1), unique=True, min_size=1, max_size=60)


class Gate:
    """Passes when one of its ways to be mended is in fp32, and counts how often it is asked."""

    def __init__(self, *ways: set[str]) -> None:
        self.ways, self.calls = ways, 0

    def __call__(self, kept: frozenset[str]) -> bool:
        self.calls += 1
        return any(way <= kept for way in self.ways)


@given(layer_lists, st.data())
def test_exactly_the_culprits_stay_in_fp32_in_the_models_order(layers: list[str], data: st.DataObject) -> None:
    culprits = data.draw(st.sets(st.sampled_from(layers)))
    assert smallest(layers, Gate(culprits)) == tuple(layer for layer in layers if layer in culprits)


@given(layer_lists, st.data())
def test_no_layer_of_the_answer_can_be_left_out(layers: list[str], data: st.DataObject) -> None:
    """Also where different sets would do."""
    ways = data.draw(st.lists(st.sets(st.sampled_from(layers), min_size=1), min_size=1, max_size=4))
    gate = Gate(*ways)
    kept = frozenset(smallest(layers, gate) or ())
    assert gate(kept)
    assert not any(gate(kept - {layer}) for layer in kept)


def test_one_culprit_of_a_hundred_takes_ten_calls() -> None:
    gate = Gate({"layers.73"})
    assert smallest(LAYERS, gate) == ("layers.73",)
    assert gate.calls <= 10


def test_no_layer_stays_in_fp32_if_the_gate_passes() -> None:
    gate = Gate(set())
    assert smallest(LAYERS, gate) == ()
    assert gate.calls == 1


def test_a_model_that_fails_in_fp32_too_is_not_searched() -> None:
    gate = Gate()
    assert smallest(LAYERS, gate) is None
    assert gate.calls == 2
