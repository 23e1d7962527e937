"""The interval of a percentile: what holds for any latencies, and how often it covers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_recommender.capacity.percentile_interval import PercentileInterval, percentile_interval
from inference_recommender.capacity.search import Seen

SECONDS = 40.0


def _seen(latencies: np.ndarray, duration_s: float = SECONDS) -> Seen:
    """Spreads the latencies evenly over the time after the beginning, which is left out."""
    intended = np.linspace(duration_s * 0.1, duration_s, len(latencies), endpoint=False)
    return Seen(duration_s=duration_s, intended_s=intended, latencies_ms=latencies.astype(np.float64))


def _ends(interval: PercentileInterval) -> tuple[float, float, float]:
    return interval.low_ms, interval.latency_ms, interval.high_ms


LATENCIES = st.lists(st.floats(0.1, 1e4) | st.just(np.inf), max_size=300).map(np.array)


@settings(max_examples=40)
@given(latencies=LATENCIES, percentile=st.sampled_from([50.0, 90.0, 99.0]), looks=st.integers(1, 8))
def test_the_percentile_lies_in_its_interval_whose_ends_were_measured_or_are_unknown(
    latencies: np.ndarray, percentile: float, looks: int
) -> None:
    interval = percentile_interval([_seen(latencies)], percentile, looks)
    assert 0 <= interval.low_ms <= interval.latency_ms <= interval.high_ms
    assert {interval.low_ms, interval.high_ms} <= {0.0, np.inf, *latencies.tolist()}
    assert (interval.requests, interval.errors) == (len(latencies), np.isinf(latencies).sum())


@settings(max_examples=40)
@given(latencies=LATENCIES, factor=st.sampled_from([0.25, 2.0, 1024.0]))
def test_the_interval_is_of_the_unit_of_the_latencies(latencies: np.ndarray, factor: float) -> None:
    plain = _ends(percentile_interval([_seen(latencies)], 90.0))
    scaled = _ends(percentile_interval([_seen(latencies * factor)], 90.0))
    assert scaled == tuple(end * factor for end in plain)


@settings(max_examples=40)
@given(latencies=LATENCIES, looks=st.integers(2, 10))
def test_more_looks_make_a_wider_interval(latencies: np.ndarray, looks: int) -> None:
    once, often = (percentile_interval([_seen(latencies)], 90.0, count) for count in (1, looks))
    assert often.low_ms <= once.low_ms
    assert often.high_ms >= once.high_ms


@settings(max_examples=40)
@given(latencies=LATENCIES, first=st.integers(1, 9))
def test_the_order_of_runs_does_not_count(latencies: np.ndarray, first: int) -> None:
    runs = [_seen(latencies), _seen(np.arange(1.0, 20.0 * first))]
    assert percentile_interval(runs, 90.0) == percentile_interval(runs[::-1], 90.0)


def test_a_runs_beginning_is_left_out() -> None:
    settling = Seen(duration_s=SECONDS, intended_s=np.linspace(0, 3.9, 100), latencies_ms=np.full(100, 1e6))
    assert percentile_interval([settling], 99.0).requests == 0


def test_equal_latencies_are_known_exactly() -> None:
    assert _ends(percentile_interval([_seen(np.full(2000, 7.0))], 99.0)) == (7.0, 7.0, 7.0)


def test_too_few_requests_show_nothing_to_be_above_the_percentile() -> None:
    random = np.random.default_rng(1)
    assert percentile_interval([_seen(random.uniform(1, 2, 200))], 99.0).high_ms == np.inf
    assert percentile_interval([_seen(random.uniform(1, 2, 2000))], 99.0).high_ms <= 2


def test_requests_that_fail_are_later_than_any_latency() -> None:
    latencies = np.full(4000, 5.0)
    latencies[::20] = np.inf
    failing = percentile_interval([_seen(latencies)], 99.0)
    assert _ends(failing) == (np.inf, np.inf, np.inf)
    assert failing.errors == 200


def test_late_requests_in_bursts_say_less_than_scattered_ones() -> None:
    scattered = np.where(np.arange(8000) % 160 == 0, 60.0, 5.0)
    bursts = np.where(np.arange(8000) % 4000 < 25, 60.0, 5.0)
    assert percentile_interval([_seen(scattered)], 99.0).high_ms == 5.0
    assert percentile_interval([_seen(bursts)], 99.0).high_ms == np.inf


def _independent(random: np.random.Generator) -> Seen:
    return _seen(random.exponential(10.0, 3000))


def _in_bursts(random: np.random.Generator) -> Seen:
    """Every second has a level of its own, so that its requests are late together."""
    return _seen(np.repeat(random.exponential(10.0, 40), 75))


@pytest.mark.parametrize(("draw", "percentile"), [(_independent, 99.0), (_in_bursts, 75.0)])
def test_the_interval_covers_the_truth_in_95_of_a_hundred_runs(draw, percentile: float) -> None:  # type: ignore[no-untyped-def]
    truth = -10 * np.log(1 - percentile / 100)
    intervals = [percentile_interval([draw(np.random.default_rng(seed))], percentile) for seed in range(100)]
    assert sum(interval.low_ms <= truth <= interval.high_ms for interval in intervals) >= 93
