"""Isotonic fits, design effects and shares of dependent requests."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.capacity.statistics import (
    design_effect,
    effective_share,
    isotonic,
)


@given(st.lists(st.tuples(st.floats(-100, 100), st.floats(0.1, 10)), min_size=1, max_size=30))
def test_an_isotonic_fit_never_falls_and_keeps_the_weighted_sum(points: list[tuple[float, float]]) -> None:
    values, weights = zip(*points, strict=True)
    fitted = isotonic(values, weights)
    assert all(left <= right + 1e-9 for left, right in pairwise(fitted))
    assert np.dot(fitted, weights) == pytest.approx(np.dot(values, weights), abs=1e-6)


def test_values_that_rise_already_stay_and_others_are_pooled_by_weight() -> None:
    assert isotonic([1, 2, 2, 5], [1, 1, 1, 1]).tolist() == [1, 2, 2, 5]
    assert isotonic([3, 1, 4], [1, 1, 1]).tolist() == [2, 2, 4]
    assert isotonic([3, 1, 4], [3, 1, 1]).tolist() == [2.5, 2.5, 4]
    assert isotonic([3, 1, 4], [3, 0, 1]).tolist() == pytest.approx([3, 3, 4])
    assert isotonic([], []).tolist() == []


def test_the_design_effect_of_bursts_is_their_size_and_of_independent_events_one() -> None:
    random = np.random.default_rng(4)
    requests = np.full(5000, 200.0)
    bursts = random.binomial(10, 0.05, 5000).astype(np.float64)
    assert design_effect(20 * bursts, requests) == pytest.approx(20, rel=0.1)
    assert design_effect(random.binomial(200, 0.05, 5000).astype(np.float64), requests) == pytest.approx(1, rel=0.1)


def test_a_share_at_the_limit_is_shown_below_it_no_more_often_than_the_error() -> None:
    """Bursts of twenty over thirty blocks: taken for independent, a third of these would pass."""
    random = np.random.default_rng(5)
    requests = np.full(30, 1000.0)
    passed = 0
    for _ in range(1000):
        late = 20 * random.binomial(50, 0.05, 30).astype(np.float64)
        passed += effective_share(late, requests).shown_below(0.05)
    assert passed <= 70


def test_one_block_shows_nothing() -> None:
    share = effective_share(np.array([0.0]), np.array([1000.0]))
    assert not share.shown_below(0.05)
    assert not share.shown_above(0.0001)


def test_a_plain_excess_is_shown_above() -> None:
    late, requests = np.full(30, 20.0), np.full(30, 1000.0)
    assert effective_share(late, requests).shown_above(0.01)
    assert not effective_share(late, requests).shown_above(0.03)
