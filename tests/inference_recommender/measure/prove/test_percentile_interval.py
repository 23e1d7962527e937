"""The interval of a percentile: what holds for any latencies, and how often it covers."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_recommender.capacity.probe import ProbeRecords
from inference_recommender.measure.prove.percentile_interval import ERROR, PercentileInterval, percentile_interval

SECONDS = 40.0


def _seen(latencies: np.ndarray, duration_s: float = SECONDS) -> ProbeRecords:
    """Spreads the latencies evenly over the time after the beginning, which is left out."""
    intended = np.linspace(duration_s * 0.1, duration_s, len(latencies), endpoint=False)
    return ProbeRecords(duration_s=duration_s, intended_s=intended, latencies_ms=latencies.astype(np.float64))


def _interval(
    seen: Sequence[ProbeRecords], percentile: float, error: float = ERROR, limit_ms: float = np.inf
) -> PercentileInterval:
    return percentile_interval(seen, percentile, limit_ms, error)


def _ends(interval: PercentileInterval) -> tuple[float, float, float]:
    return interval.low_ms, interval.latency_ms, interval.high_ms


LATENCIES = st.lists(st.floats(0.1, 1e4) | st.just(np.inf), max_size=300).map(np.array)


@settings(max_examples=40)
@given(latencies=LATENCIES, percentile=st.sampled_from([50.0, 90.0, 99.0]), looks=st.integers(1, 8))
def test_the_percentile_lies_in_its_interval_whose_ends_were_measured_or_are_unknown(
    latencies: np.ndarray, percentile: float, looks: int
) -> None:
    interval = _interval([_seen(latencies)], percentile, ERROR / looks)
    assert 0 <= interval.low_ms <= interval.latency_ms <= interval.high_ms
    assert {interval.low_ms, interval.high_ms} <= {0.0, np.inf, *latencies.tolist()}
    assert (interval.requests, interval.errors) == (len(latencies), np.isinf(latencies).sum())


@settings(max_examples=40)
@given(latencies=LATENCIES, factor=st.sampled_from([0.25, 2.0, 1024.0]))
def test_the_interval_is_of_the_unit_of_the_latencies(latencies: np.ndarray, factor: float) -> None:
    plain = _ends(_interval([_seen(latencies)], 90.0))
    scaled = _ends(_interval([_seen(latencies * factor)], 90.0))
    assert scaled == tuple(end * factor for end in plain)


@settings(max_examples=40)
@given(latencies=LATENCIES, looks=st.integers(2, 10))
def test_a_smaller_error_makes_a_wider_interval(latencies: np.ndarray, looks: int) -> None:
    once, often = (_interval([_seen(latencies)], 90.0, ERROR / count) for count in (1, looks))
    assert often.low_ms <= once.low_ms
    assert often.high_ms >= once.high_ms


@settings(max_examples=40)
@given(latencies=LATENCIES, first=st.integers(1, 9))
def test_the_order_of_runs_does_not_count(latencies: np.ndarray, first: int) -> None:
    runs = [_seen(latencies), _seen(np.arange(1.0, 20.0 * first))]
    assert _interval(runs, 90.0) == _interval(runs[::-1], 90.0)


def test_a_runs_beginning_is_left_out() -> None:
    settling = ProbeRecords(duration_s=SECONDS, intended_s=np.linspace(0, 3.9, 100), latencies_ms=np.full(100, 1e6))
    assert _interval([settling], 99.0).requests == 0


def test_equal_latencies_are_known_exactly() -> None:
    assert _ends(_interval([_seen(np.full(2000, 7.0))], 99.0)) == (7.0, 7.0, 7.0)


def test_too_few_requests_show_nothing_to_be_above_the_percentile() -> None:
    random = np.random.default_rng(1)
    assert _interval([_seen(random.uniform(1, 2, 200))], 99.0).high_ms == np.inf
    assert _interval([_seen(random.uniform(1, 2, 2000))], 99.0).high_ms <= 2


def test_requests_that_fail_are_later_than_any_latency() -> None:
    latencies = np.full(4000, 5.0)
    latencies[::20] = np.inf
    failing = _interval([_seen(latencies)], 99.0)
    assert _ends(failing) == (np.inf, np.inf, np.inf)
    assert failing.errors == 200


def _with_late(places: np.ndarray, count: int = 10_000) -> ProbeRecords:
    latencies = np.full(count, 5.0)
    latencies[places] = 60.0
    return _seen(latencies)


def test_scattered_late_requests_are_counted_against_the_number_allowed() -> None:
    kept = _interval([_with_late(np.arange(0, 10_000, 400))], 99.0, limit_ms=50.0)
    assert (kept.verdict, kept.late, kept.late_allowed, kept.requests) == ("kept", 25, 100, 10_000)
    unclear = _interval([_with_late(np.arange(0, 10_000, 110))], 99.0, limit_ms=50.0)
    assert (unclear.verdict, unclear.late) == ("unclear", 91)
    missed = _interval([_with_late(np.arange(0, 10_000, 40))], 99.0, limit_ms=50.0)
    assert (missed.verdict, missed.late) == ("missed", 250)


def test_a_burst_as_large_as_the_allowed_number_is_not_kept() -> None:
    assert _interval([_with_late(np.arange(5000, 5080))], 99.0, limit_ms=50.0).verdict == "unclear"


def test_one_burst_far_below_the_limit_does_not_stop_a_verdict() -> None:
    """All of the slowest 1 % in one stall, and none over the limit: the interval had no upper end before."""
    latencies = np.full(30_000, 5.0)
    latencies[15_000:15_400] = 31.7
    kept = _interval([_seen(latencies, duration_s=80.0)], 99.0, limit_ms=50.0)
    assert (kept.verdict, kept.late, kept.latency_ms) == ("kept", 0, 31.7)
    assert kept.high_ms <= 50.0


def test_the_verdict_and_the_interval_agree() -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        interval = _interval([_seen(random.exponential(10.0, 4000))], 99.0, limit_ms=46.0 + seed % 3 * 4)
        assert (interval.verdict == "kept") == (interval.high_ms <= 46.0 + seed % 3 * 4)


def _independent(random: np.random.Generator) -> ProbeRecords:
    return _seen(random.exponential(10.0, 3000))


def _in_bursts(random: np.random.Generator) -> ProbeRecords:
    """Every second has a level of its own, so that its requests are late together."""
    return _seen(np.repeat(random.exponential(10.0, 40), 75))


@pytest.mark.parametrize(("draw", "percentile"), [(_independent, 99.0), (_in_bursts, 75.0)])
def test_the_interval_covers_the_truth_in_95_of_a_hundred_runs(draw, percentile: float) -> None:  # type: ignore[no-untyped-def]
    truth = -10 * np.log(1 - percentile / 100)
    intervals = [_interval([draw(np.random.default_rng(seed))], percentile) for seed in range(100)]
    assert sum(interval.low_ms <= truth <= interval.high_ms for interval in intervals) >= 93
