"""The highest sustained rate within a limit, on made-up runs whose answer is known."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.capacity import Capacity, Limit, capacity, samples_needed

P99 = Limit(percentile=99, latency_ms=50)


def _ramp(rates: Sequence[int], latencies_ms: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """One second at each rate, evenly spaced, every request of a second with that second's latency."""
    finished = np.concatenate([second + np.arange(rate) / rate for second, rate in enumerate(rates)])
    return finished, np.repeat(np.array(latencies_ms, dtype=float), rates)


def _capacity(finished: np.ndarray, latencies: np.ndarray, end_s: float, failed: int = 0) -> Capacity | None:
    succeeded = np.ones(len(finished), dtype=bool)
    succeeded[:failed] = False
    return capacity(finished, latencies, succeeded, P99, end_s)


def test_the_fastest_interval_within_the_limit_wins() -> None:
    finished, latencies = _ramp([100] * 10 + [200] * 10 + [300] * 10, [5] * 10 + [20] * 10 + [80] * 10)
    found = _capacity(finished, latencies, 30)
    assert found == Capacity(start_s=10, end_s=20, invocations_per_minute=200 * 60, latency_ms=20, within_limit=True)


def test_where_nothing_keeps_the_limit_the_lowest_latency_is_told() -> None:
    finished, latencies = _ramp([100] * 10 + [200] * 10, [70] * 10 + [90] * 10)
    found = _capacity(finished, latencies, 20)
    assert found is not None
    assert not found.within_limit
    assert found.latency_ms == 70


def test_too_few_requests_are_no_evidence() -> None:
    finished, latencies = _ramp([10] * 10, [5] * 10)
    assert _capacity(finished, latencies, 10) is None


def test_an_interval_with_failures_is_no_evidence() -> None:
    finished, latencies = _ramp([100] * 10, [5] * 10)
    assert _capacity(finished, latencies, 10, failed=10) is not None
    assert _capacity(finished, latencies, 10, failed=11) is None


def test_a_run_shorter_than_an_interval_is_one_interval() -> None:
    finished, latencies = _ramp([500] * 3, [5] * 3)
    found = _capacity(finished, latencies, 3)
    assert found is not None
    assert found.invocations_per_minute == pytest.approx(30_000)


@pytest.mark.parametrize(("percentile", "needed"), [(50, 4), (90, 20), (95, 40), (99, 200), (99.9, 2000)])
def test_two_samples_above_the_percentile_are_asked_for(percentile: float, needed: int) -> None:
    assert samples_needed(percentile) == pytest.approx(needed, abs=1)


@given(rate=st.integers(25, 400), seconds=st.integers(10, 40), latency=st.floats(1, 200))
def test_a_steady_run_has_its_own_rate(rate: int, seconds: int, latency: float) -> None:
    finished, latencies = _ramp([rate] * seconds, [latency] * seconds)
    found = _capacity(finished, latencies, seconds)
    assert found is not None
    assert found.invocations_per_minute == pytest.approx(rate * 60)
    assert found.within_limit == (latency <= 50)
