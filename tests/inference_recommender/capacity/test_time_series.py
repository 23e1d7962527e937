"""A time series' values, and the capacity's interval and the warm-up from it."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.capacity.statistics import (
    EffectiveShare,
    Limit,
    design_effect,
    effective_share,
    isotonic,
)
from inference_recommender.capacity.time_series import Series, series_findings
from tests.builders import known

P95 = Limit(percentile=95, latency_ms=50)
NO_LIMIT = Limit(percentile=95, latency_ms=None)


def _series(users: Sequence[float | None], rates: Sequence[float], p95: Sequence[float], period_s: int = 60) -> Series:
    return Series(
        period_s=period_s,
        seconds=tuple(float(period_s * number) for number in range(len(users))),
        users=tuple(users),
        invocations=tuple(rate * period_s / 60 for rate in rates),
        errors=(0.0,) * len(users),
        latency_ms={"p50": tuple(value / 2 for value in p95), "p95": tuple(p95)},
    )


def _ramp(seed: int, minutes: int = 20) -> Series:
    """A user more each minute; 600 a minute each up to ten users, then the queue grows: P95 passes 50 ms at 15.5."""
    random = np.random.default_rng(seed)
    users = np.arange(1.0, minutes + 1)
    rates = np.minimum(users, 10) * 600 * random.normal(1, 0.01, minutes)
    latencies = np.where(users <= 10, 20, 20 + (users - 10) * 5.45) * random.normal(1, 0.01, minutes)
    return _series(users.tolist(), rates.tolist(), latencies.tolist())


def test_the_interval_covers_the_rate_at_the_highest_load_within_the_limit() -> None:
    covered = 0
    for seed in range(100):
        interval = known(series_findings(_ramp(seed), P95).interval)
        assert interval[1] - interval[0] < 0.2 * 6000
        covered += interval[0] <= 6000 <= interval[1]
    assert covered >= 90


def test_a_load_that_may_or_may_not_keep_the_limit_widens_the_interval() -> None:
    """Three users keep it plainly; four are at the very limit, and carry more."""
    random = np.random.default_rng(1)
    users = [1.0] * 4 + [2.0] * 4 + [3.0] * 4 + [4.0] * 4
    noise = random.normal(1, 0.03, 16)
    rates = np.array(users) * 1000 * noise
    interval = series_findings(
        _series(users, rates.tolist(), (np.array([20, 30, 40, 49.9]).repeat(4) / noise).tolist()), P95
    ).interval
    assert interval is not None
    assert interval[0] < 3000 < 4000 < interval[1]


def test_where_no_load_keeps_the_limit_there_is_no_interval() -> None:
    assert series_findings(_series([1.0] * 10, [600.0] * 10, [80.0] * 10), P95).interval is None


@pytest.mark.parametrize("points", [0, 1, 2, 6])
def test_a_short_series_gives_no_findings(points: int) -> None:
    """The first and the last of seven periods are incomplete; six leave four."""
    findings = series_findings(_series([1.0] * points, [600.0] * points, [20.0] * points), P95)
    assert (findings.interval, findings.warm_up_s) == (None, None)


def test_without_users_or_the_percentile_there_is_no_interval() -> None:
    assert series_findings(_series([None] * 20, [600.0] * 20, [20.0] * 20), P95).interval is None
    assert series_findings(_ramp(1), Limit(percentile=99.9, latency_ms=50)).interval is None


def test_warm_up_is_detected_in_the_first_load_and_left_out() -> None:
    """Periods of a second, as in the local account: 6 s at a fifth of the rate."""
    random = np.random.default_rng(2)
    latencies = np.concatenate([np.full(7, 40.0), np.full(33, 8.0)]) * random.normal(1, 0.02, 40)
    rates = 60_000 / latencies
    findings = series_findings(_series([1.0] * 40, rates.tolist(), latencies.tolist(), period_s=1), P95)
    assert findings.warm_up_s == 6
    assert findings.interval is not None
    assert findings.interval[0] < 7500 < findings.interval[1]
    assert findings.interval[1] < 7700


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


def test_an_exact_count_is_not_rounded_up() -> None:
    """10 / 281 · 281 is 10.000000000000002, and eleven late requests would not show a share below 6.2 %."""
    assert EffectiveShare(share=10 / 281, requests=281).shown_below(0.062)


def test_one_block_shows_nothing() -> None:
    share = effective_share(np.array([0.0]), np.array([1000.0]))
    assert not share.shown_below(0.05)
    assert not share.shown_above(0.0001)


def test_a_plain_excess_is_shown_above() -> None:
    late, requests = np.full(30, 20.0), np.full(30, 1000.0)
    assert effective_share(late, requests).shown_above(0.01)
    assert not effective_share(late, requests).shown_above(0.03)
