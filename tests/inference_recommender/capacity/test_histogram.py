"""Histograms that merge exactly, and timelines of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.capacity.histogram import LOWEST_MS, RELATIVE_ERROR, Histogram, bins_of, latencies_of, merged
from inference_recommender.load_generator.records import Rows
from inference_recommender.load_generator.timeline import Timeline
from inference_recommender.load_generator.timeline import merged as merged_timelines

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
    found = Histogram.of(latencies_ms).percentile(percentile)
    assert found is not None
    assert abs(found - exact) <= exact * RELATIVE_ERROR * SLACK


@given(LATENCIES, LATENCIES, LATENCIES)
def test_merging_is_exact_in_any_order_and_grouping(
    a: np.typing.NDArray[np.float64], b: np.typing.NDArray[np.float64], c: np.typing.NDArray[np.float64]
) -> None:
    x, y, z = map(Histogram.of, (a, b, c))
    assert (x + y) + z == x + (y + z) == merged([z, x, y]) == Histogram.of(np.concatenate([a, b, c]))
    assert x + y == y + x
    assert x + Histogram() == x
    assert len(x + y) == len(a) + len(b)


def test_of_nothing_there_is_no_percentile() -> None:
    assert Histogram().percentile(50) is None
    assert Histogram.of(np.zeros(0)) == Histogram()


def test_what_is_too_short_to_tell_counts_as_the_lowest() -> None:
    assert Histogram.of(np.array([0.0, -1.0, 1e-9])) == Histogram.of(np.full(3, LOWEST_MS))


REQUEST = st.tuples(
    st.integers(0, 20_000).map(lambda ms: ms / 1000), st.floats(0.01, 1e4), st.floats(0, 1e3), st.booleans()
)


def _rows(requests: list[tuple[float, float, float, bool]]) -> Rows:
    finished, latency, held, succeeded = (np.array(column) for column in zip(*sorted(requests), strict=True))
    return Rows(
        finished_s=finished, latencies_ms=latency, from_intended_ms=latency + held, succeeded=succeeded.astype(bool)
    )


def _timeline(requests: list[tuple[float, float, float, bool]], started_at: float) -> Timeline:
    return Timeline.of(_rows(requests), np.array([0.25, 0.5]), started_at)


SOME = st.lists(REQUEST, min_size=1, max_size=30)


@given(SOME, SOME, SOME, st.floats(0, 5))
def test_timelines_merge_exactly_on_the_common_clock(
    a: list[tuple[float, float, float, bool]],
    b: list[tuple[float, float, float, bool]],
    c: list[tuple[float, float, float, bool]],
    later_s: float,
) -> None:
    x, y, z = _timeline(a, 1000.5), _timeline(b, 1000.5), _timeline(c, 1000.5 + later_s)
    assert merged_timelines([merged_timelines([x, y]), z]) == merged_timelines([z, merged_timelines([y, x])])
    both = Timeline.of(_rows(a + b), np.array([0.25, 0.25, 0.5, 0.5]), 1000.5)
    assert merged_timelines([x, y]) == both
    assert len(both) == len(a) + len(b)
    assert both.errors() == sum(not succeeded for *_, succeeded in a + b)


@given(SOME)
def test_a_timeline_gives_the_requests_back_by_second_and_within_the_error(
    requests: list[tuple[float, float, float, bool]],
) -> None:
    rows = _rows(requests)
    back = Timeline.of(rows, np.zeros(0), 1000.0).rows(1000, 1030)
    assert (np.diff(back.finished_s) >= 0).all()
    assert (np.floor(back.finished_s) == np.floor(rows.finished_s)).all()
    for name in ("latencies_ms", "from_intended_ms"):
        exact, found = (np.sort(getattr(side, name)) for side in (rows, back))
        assert (np.abs(found - exact) <= exact * RELATIVE_ERROR * SLACK).all()
    assert back.errors == rows.errors


def test_within_a_second_requests_are_spread_without_a_trend() -> None:
    rows = Rows(
        finished_s=np.full(1000, 0.4),
        latencies_ms=np.linspace(1, 9, 1000),
        from_intended_ms=np.linspace(1, 9, 1000),
        succeeded=np.ones(1000, dtype=bool),
    )
    timeline = Timeline.of(rows, np.zeros(0), 1000.5)
    back = timeline.rows(1000, 1002)
    assert back.finished_s == pytest.approx(np.linspace(0.0005, 0.9995, 1000))
    assert abs(np.corrcoef(back.finished_s, back.latencies_ms)[0, 1]) < 0.1
    assert len(timeline.rows(1001, 1002).finished_s) == 0
