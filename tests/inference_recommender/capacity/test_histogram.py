"""Histograms of latencies: their error."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.capacity.histogram import LOWEST_MS, RELATIVE_ERROR, Histogram, bins_of, latencies_of

LATENCIES = st.lists(st.floats(LOWEST_MS, 1e6), max_size=60).map(np.array)
SLACK = 1 + 1e-9


@given(LATENCIES)
def test_a_latency_read_back_is_within_the_documented_error(latencies_ms: np.typing.NDArray[np.float64]) -> None:
    read = latencies_of(bins_of(latencies_ms))
    assert (np.abs(read - latencies_ms) <= latencies_ms * RELATIVE_ERROR * SLACK).all()
    assert RELATIVE_ERROR < 0.00502


@given(LATENCIES.filter(len), st.floats(0, 100))
def test_a_percentile_is_that_of_the_latencies_within_the_error(
    latencies_ms: np.typing.NDArray[np.float64], percentile: float
) -> None:
    exact = np.percentile(latencies_ms, percentile, method="inverted_cdf")
    estimate = Histogram.of(latencies_ms).percentile(percentile)
    assert estimate is not None
    assert abs(estimate - exact) <= exact * RELATIVE_ERROR * SLACK


def test_an_empty_histogram_has_no_percentile() -> None:
    assert Histogram().percentile(50) is None
    assert Histogram.of(np.zeros(0)) == Histogram()


def test_a_latency_below_the_lowest_counts_as_the_lowest() -> None:
    assert Histogram.of(np.array([0.0, -1.0, 1e-9])) == Histogram.of(np.full(3, LOWEST_MS))
