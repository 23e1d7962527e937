"""A time series' values, and the capacity's interval and the warm-up from it."""

from collections.abc import Sequence

import numpy as np
import pytest

from inference_recommender.capacity.statistics import Limit
from inference_recommender.capacity.time_series import Series, series_findings

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
        interval = series_findings(_ramp(seed), P95).interval
        assert interval is not None
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
