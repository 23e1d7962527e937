"""Policies on unseen days: the share within the tolerance, the cost of perfect foresight, the caution in advance."""

from dataclasses import replace
from datetime import date
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_recommender.simulate.policy import FIRST_MONDAY, Policy
from inference_recommender.simulate.seeds import SimulationCase, Tolerance
from inference_recommender.simulate.trace import Trace, following
from inference_recommender.simulate.tracking import DAY_MINUTES
from inference_recommender.simulate.unseen import foresight_instances, judge, rise_that_tracking_misses
from tests.inference_recommender.simulate.service import TIMING
from tests.inference_recommender.simulate.test_simulation import EXACT
from workloads import UsageError

POLICY = Policy(target_invocations_per_instance=4000.0, min_capacity=1, max_capacity=40)


def case(*per_second: float) -> SimulationCase:
    traffic = Trace(name="days", sha256="", start=FIRST_MONDAY, rates=np.array(per_second))
    return SimulationCase(traffic=traffic, curve=EXACT, timing=TIMING, tolerance=Tolerance())


def days(*levels: float) -> list[float]:
    """Returns a day per level: 150 a second, and from noon on as many as the level."""
    return [150.0 if minute < DAY_MINUTES // 2 else level for level in levels for minute in range(DAY_MINUTES)]


def test_a_policy_holds_on_95_percent_of_the_days() -> None:
    """Three instances answer 300 a second. A jump to 900 takes them longer than five minutes."""
    found = judge(case(*days(180, 900, 180)), POLICY, range(2), 1, lambda _: None)
    assert [each.minutes_over > 5 for each in found.days] == [False, True, False]
    assert (found.days_within, found.holds) == (2, False)
    assert found.days[1].day == date(2026, 1, 6)
    assert found.days[1].peak_per_minute == 900 * 60
    quiet = judge(case(*days(180, 180)), POLICY, range(2), 1, lambda _: None)
    assert quiet.holds
    assert quiet.cost_over_foresight == pytest.approx(3 / 2, rel=0.05), "two instances are enough for 150 and 180"


def test_less_than_a_day_is_refused() -> None:
    with pytest.raises(UsageError, match="--judge-on: days has 60 minutes; give at least a day"):
        judge(case(*[1.0] * 60), POLICY, range(1), 1, lambda _: None)


def test_perfect_foresight_pays_for_starts_and_keeps_instances_through_short_gaps() -> None:
    """An instance starts for three minutes and goes for one."""
    needed = np.array([1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1], dtype=float)
    assert foresight_instances(needed, TIMING, 1).tolist() == [1, 1] + [2] * 10 + [1] * 3 + [2] * 5 + [1]


@settings(max_examples=100)
@given(st.lists(st.integers(0, 1), min_size=1, max_size=9))
def test_no_course_of_an_instance_is_cheaper_than_perfect_foresight(needed: list[int]) -> None:
    """Every course of one instance that serves when needed, with minutes before and after the trace."""
    padded = [0] * 3 + needed + [0]

    def minutes(serves: tuple[int, ...]) -> int:
        changes = [after - before for before, after in pairwise((0, *serves, 0))]
        return sum(serves) + 4 * changes.count(1)

    courses = product((0, 1), repeat=len(padded))
    cheapest = min(minutes(each) for each in courses if all(a >= b for a, b in zip(each, padded, strict=True)))
    assert foresight_instances(np.array(padded, dtype=float), TIMING, 0).sum() == cheapest


def test_a_rise_that_target_tracking_misses_is_told_in_advance() -> None:
    """An instance serves six minutes after a rise begins: three datapoints and three minutes of start."""
    steep = case(*days(900))
    assert rise_that_tracking_misses(steep, POLICY) == (
        "Target tracking cannot hold this traffic: the load rises up to 6.0 × in 6 minutes, and an "
        "instance serves 6 minutes after a rise begins. Lower the target, or raise the minimum before the rise with "
        "scheduled_minimums."
    )
    assert rise_that_tracking_misses(case(*days(200)), POLICY) is None
    assert rise_that_tracking_misses(steep, replace(POLICY, min_capacity=40)) is None


def test_a_trace_follows_the_one_before_it() -> None:
    before = case(*[1.0] * 60).traffic
    assert isinstance(before, Trace)
    later = replace(before, start=FIRST_MONDAY.replace(hour=1), rates=np.full(5, 2.0))
    assert following(later, before).load(0).history.tolist() == [1.0] * 60
    with pytest.raises(UsageError, match="days begins at 2026-01-05 00:00 UTC, and days ends at 2026-01-05 01:00"):
        following(before, before)
