"""Users over time from the API's TrafficPattern, and the moments of an open loop's arrivals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_recommender.load_generator.plan import Arrivals, TrafficPattern
from inference_recommender.load_generator.traffic import Schedule, arrival_times, schedule

PHASES = st.lists(
    st.fixed_dictionaries(
        {
            "InitialNumberOfUsers": st.integers(1, 50),
            "SpawnRate": st.integers(0, 120),
            "DurationInSeconds": st.integers(1, 600),
        }
    ),
    min_size=1,
    max_size=5,
)


def _schedule(pattern: dict[str, Any], longest_s: float = 1e9) -> Schedule:
    return schedule(TrafficPattern.model_validate(pattern, strict=False), longest_s)


def _phases(*phases: tuple[int, int, int]) -> dict[str, Any]:
    keys = ("InitialNumberOfUsers", "SpawnRate", "DurationInSeconds")
    return {"TrafficType": "PHASES", "Phases": [dict(zip(keys, phase, strict=True)) for phase in phases]}


def test_a_phase_gains_a_user_every_60_over_spawn_rate_seconds() -> None:
    planned = _schedule(_phases((1, 2, 120)))
    assert [planned.users_at(second) for second in (0, 29.9, 30, 59.9, 60, 119.9, 120)] == [1, 1, 2, 2, 3, 4, 0]


def test_each_phase_starts_with_its_own_number_of_users() -> None:
    planned = _schedule(_phases((1, 60, 10), (3, 0, 5)))
    assert [planned.users_at(second) for second in (9.5, 10, 14.9, 15)] == [10, 3, 3, 0]
    assert planned.boundaries_s == (0, 10, 15)


def test_stairs_divide_their_duration_into_equal_steps() -> None:
    planned = _schedule(
        {"TrafficType": "STAIRS", "Stairs": {"DurationInSeconds": 180, "NumberOfSteps": 3, "UsersPerStep": 2}}
    )
    assert [planned.users_at(second) for second in (0, 59, 60, 120, 179, 180)] == [2, 2, 4, 6, 6, 0]


def test_the_job_duration_cuts_the_traffic() -> None:
    planned = _schedule(_phases((1, 6, 120), (5, 0, 60)), longest_s=25)
    assert planned.end_s == 25
    assert [change.at_s for change in planned.changes] == [0, 10, 20]


@pytest.mark.parametrize(
    "pattern",
    [
        {"TrafficType": "PHASES"},
        {"TrafficType": "STAIRS", "Phases": _phases((1, 0, 1))["Phases"]},
        {"TrafficType": "WAVES", **{"Phases": _phases((1, 0, 1))["Phases"]}},
    ],
)
def test_a_pattern_without_its_variant_is_refused(pattern: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="TrafficType"):
        _schedule(pattern)


@given(PHASES)
def test_users_only_grow_within_a_phase_and_by_one_at_a_time(phases: list[dict[str, int]]) -> None:
    planned = _schedule({"TrafficType": "PHASES", "Phases": phases})
    starts = planned.boundaries_s[:-1]
    assert planned.end_s == sum(phase["DurationInSeconds"] for phase in phases)
    for earlier, later in zip(planned.changes, planned.changes[1:], strict=False):
        assert earlier.at_s < later.at_s
        if later.at_s not in starts:
            assert later.users == earlier.users + 1
    for start, phase in zip(starts, phases, strict=True):
        assert planned.users_at(start) == phase["InitialNumberOfUsers"]


def _arrivals(per_minute: float, seconds: float, seed: int = 1) -> Arrivals:
    return Arrivals(invocations_per_minute=per_minute, duration_in_seconds=seconds, seed=seed)


@settings(max_examples=30)
@given(st.floats(1, 100_000), st.floats(0.1, 60), st.integers(0, 2**32))
def test_arrivals_ascend_within_the_duration_and_a_seed_gives_them_again(
    rate: float, seconds: float, seed: int
) -> None:
    times = arrival_times(_arrivals(rate, seconds, seed))
    assert (np.diff(times) >= 0).all()
    assert ((times >= 0) & (times < seconds)).all()
    assert (times == arrival_times(_arrivals(rate, seconds, seed))).all()
    assert (arrival_times(_arrivals(rate, seconds, seed), seconds / 2) == times[times < seconds / 2]).all()


def test_arrivals_are_a_poisson_process_of_the_rate() -> None:
    times = arrival_times(_arrivals(60_000, 100))
    assert len(times) == pytest.approx(100_000, abs=5 * 100_000**0.5)
    gaps_ms = np.diff(times) * 1000
    assert gaps_ms.std() == pytest.approx(gaps_ms.mean(), rel=0.02)
    assert np.percentile(gaps_ms, [50, 95]) == pytest.approx([np.log(2), np.log(20)], rel=0.02)
    per_second = np.bincount(times.astype(int))
    assert per_second.var() == pytest.approx(1000, rel=0.6)
