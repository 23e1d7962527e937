"""The verdict on late requests and the interval of a percentile, for any latencies; and how often it covers."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_recommender.capacity.probe import ProbeRecords
from inference_recommender.measure.percentile_interval import ERROR, PercentileInterval, percentile_interval

SECONDS = 40.0


def _seen(latencies: np.ndarray, duration_s: float = SECONDS) -> ProbeRecords:
    """Spreads the latencies evenly over the time after the beginning, which is left out."""
    intended = np.linspace(duration_s * 0.1, duration_s, len(latencies), endpoint=False)
    return ProbeRecords(duration_s=duration_s, intended_s=intended, latencies_ms=latencies.astype(np.float64))


def _with_late(places: np.ndarray, late_ms: float = 60.0, duration_s: float = SECONDS) -> ProbeRecords:
    latencies = np.full(10_000, 5.0)
    latencies[places] = late_ms
    return _seen(latencies, duration_s)


def _interval(
    seen: Sequence[ProbeRecords], percentile: float = 99.0, error: float = ERROR, limit_ms: float = np.inf
) -> PercentileInterval:
    return percentile_interval(seen, percentile, limit_ms, error)


def _ends(interval: PercentileInterval) -> tuple[float, float, float]:
    return interval.low_ms, interval.latency_ms, interval.high_ms


@settings(max_examples=40)
@given(
    latencies=st.lists(st.floats(0.1, 1e4) | st.just(np.inf), max_size=300).map(np.array),
    percentile=st.sampled_from([50.0, 90.0, 99.0]),
    looks=st.integers(2, 8),
)
def test_the_percentile_is_in_its_interval_whose_ends_are_measured_or_unknown(
    latencies: np.ndarray, percentile: float, looks: int
) -> None:
    once, often = (_interval([_seen(latencies)], percentile, ERROR / count) for count in (1, looks))
    assert 0 <= often.low_ms <= once.low_ms <= once.latency_ms <= once.high_ms <= often.high_ms
    assert {often.low_ms, once.low_ms, once.high_ms, often.high_ms} <= {0.0, np.inf, *latencies.tolist()}
    assert (once.requests, once.errors) == (len(latencies), np.isinf(latencies).sum())


def test_a_runs_beginning_is_left_out() -> None:
    settling = ProbeRecords(duration_s=SECONDS, intended_s=np.linspace(0, 3.9, 100), latencies_ms=np.full(100, 1e6))
    assert _interval([settling]).requests == 0


def test_the_ends_are_known_as_far_as_the_requests_allow() -> None:
    random = np.random.default_rng(1)
    assert _ends(_interval([_seen(np.full(2000, 7.0))])) == (7.0, 7.0, 7.0)
    assert _interval([_seen(random.uniform(1, 2, 200))]).high_ms == np.inf
    assert _interval([_seen(random.uniform(1, 2, 2000))]).high_ms <= 2
    failing = _interval([_with_late(np.arange(0, 10_000, 20), np.inf)])
    assert (_ends(failing), failing.errors) == ((np.inf, np.inf, np.inf), 500)


@pytest.mark.parametrize(
    ("seen", "verdict", "late"),
    [
        (_with_late(np.arange(0, 10_000, 400)), "kept", 25),
        (_with_late(np.arange(0, 10_000, 110)), "unclear", 91),
        (_with_late(np.arange(0, 10_000, 40)), "missed", 250),
        # A burst as large as the allowed number.
        (_with_late(np.arange(5000, 5080)), "unclear", 80),
        # All of the slowest 1 % in one burst far below the limit.
        (_with_late(np.arange(5000, 5130), 31.7, 80.0), "kept", 0),
    ],
)
def test_late_requests_are_counted_against_the_allowed_number(seen: ProbeRecords, verdict: str, late: int) -> None:
    interval = _interval([seen], limit_ms=50.0)
    assert (interval.verdict, interval.late, interval.late_allowed, interval.requests) == (verdict, late, 100, 10_000)
    assert (interval.verdict == "kept") == (interval.high_ms <= 50)


@pytest.mark.parametrize(("last_ms", "verdict"), [(5.0, "kept"), (20.0, "unclear"), (5000.0, "missed")])
def test_a_latency_that_rises_within_the_limit_is_not_called_kept(last_ms: float, verdict: str) -> None:
    latencies = np.linspace(5.0, last_ms, 10_000) + np.random.default_rng(0).normal(0.0, 1.0, 10_000)
    interval = _interval([_seen(latencies)], limit_ms=50.0)
    assert (interval.verdict, interval.rises) == (verdict, last_ms > 5)


def _independent(random: np.random.Generator) -> ProbeRecords:
    return _seen(random.exponential(10.0, 3000))


def _in_bursts(random: np.random.Generator) -> ProbeRecords:
    """Every second has a level of its own, so that its requests are late together."""
    return _seen(np.repeat(random.exponential(10.0, 40), 75))


@pytest.mark.parametrize(("draw", "percentile"), [(_independent, 99.0), (_in_bursts, 75.0)])
def test_the_interval_covers_the_truth_in_95_of_a_hundred_runs(
    draw: Callable[[np.random.Generator], ProbeRecords], percentile: float
) -> None:
    truth = -10 * np.log(1 - percentile / 100)
    intervals = [_interval([draw(np.random.default_rng(seed))], percentile) for seed in range(100)]
    assert sum(interval.low_ms <= truth <= interval.high_ms for interval in intervals) >= 93
