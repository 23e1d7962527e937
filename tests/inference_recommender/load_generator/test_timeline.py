"""Timelines: requests by second and latency bin, which merge exactly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.capacity.histogram import RELATIVE_ERROR
from inference_recommender.load_generator.records import Rows
from inference_recommender.load_generator.timeline import SUCCEEDED, TIMED_OUT, Timeline, merge_timelines

SLACK = 1 + 1e-9
OUTCOME = st.sampled_from([0, SUCCEEDED, TIMED_OUT])
REQUEST = st.tuples(st.integers(0, 20_000).map(lambda ms: ms / 1000), st.floats(0.01, 1e4), st.floats(0, 1e3), OUTCOME)


def _rows(requests: list[tuple[float, float, float, int]]) -> Rows:
    finished, latency, held, outcome = (np.array(column) for column in zip(*sorted(requests), strict=True))
    return Rows(
        finished_s=finished,
        latencies_ms=latency,
        from_intended_ms=latency + held,
        succeeded=outcome == SUCCEEDED,
        timed_out=outcome == TIMED_OUT,
    )


def _timeline(requests: list[tuple[float, float, float, int]], started_at: float) -> Timeline:
    return Timeline.of(_rows(requests), np.array([0.25, 0.5]), started_at)


SOME = st.lists(REQUEST, min_size=1, max_size=30)


@given(SOME, SOME, SOME, st.floats(0, 5))
def test_timelines_merge_exactly_on_the_common_clock(
    a: list[tuple[float, float, float, int]],
    b: list[tuple[float, float, float, int]],
    c: list[tuple[float, float, float, int]],
    later_s: float,
) -> None:
    x, y, z = _timeline(a, 1000.5), _timeline(b, 1000.5), _timeline(c, 1000.5 + later_s)
    assert merge_timelines([merge_timelines([x, y]), z]) == merge_timelines([z, merge_timelines([y, x])])
    both = Timeline.of(_rows(a + b), np.array([0.25, 0.25, 0.5, 0.5]), 1000.5)
    assert merge_timelines([x, y]) == both
    assert len(both) == len(a) + len(b)
    assert both.errors() == sum(outcome != SUCCEEDED for *_, outcome in a + b)


@given(SOME)
def test_a_timeline_gives_the_requests_back_by_second_and_within_the_error(
    requests: list[tuple[float, float, float, int]],
) -> None:
    rows = _rows(requests)
    back = Timeline.of(rows, np.zeros(0), 1000.0).rows(1000, 1030)
    assert (np.diff(back.finished_s) >= 0).all()
    assert (np.floor(back.finished_s) == np.floor(rows.finished_s)).all()
    for name in ("latencies_ms", "from_intended_ms"):
        exact, back_ms = (np.sort(getattr(side, name)) for side in (rows, back))
        assert (np.abs(back_ms - exact) <= exact * RELATIVE_ERROR * SLACK).all()
    assert back.errors == rows.errors
    assert back.timed_out.sum() == rows.timed_out.sum()


def test_within_a_second_requests_are_spread_without_a_trend() -> None:
    rows = Rows(
        finished_s=np.full(1000, 0.4),
        latencies_ms=np.linspace(1, 9, 1000),
        from_intended_ms=np.linspace(1, 9, 1000),
        succeeded=np.ones(1000, dtype=bool),
        timed_out=np.zeros(1000, dtype=bool),
    )
    timeline = Timeline.of(rows, np.zeros(0), 1000.5)
    back = timeline.rows(1000, 1002)
    assert back.finished_s == pytest.approx(np.linspace(0.0005, 0.9995, 1000))
    assert abs(np.corrcoef(back.finished_s, back.latencies_ms)[0, 1]) < 0.1
    assert len(timeline.rows(1001, 1002).finished_s) == 0
