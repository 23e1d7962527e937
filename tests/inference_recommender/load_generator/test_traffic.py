"""Users over time, from the API's TrafficPattern."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.load_generator.plan import TrafficPattern
from inference_recommender.load_generator.traffic import Schedule, schedule

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


def _of(pattern: dict[str, Any], longest_s: float = 1e9) -> Schedule:
    return schedule(TrafficPattern.model_validate(pattern, strict=False), longest_s)


def _phases(*phases: tuple[int, int, int]) -> dict[str, Any]:
    keys = ("InitialNumberOfUsers", "SpawnRate", "DurationInSeconds")
    return {"TrafficType": "PHASES", "Phases": [dict(zip(keys, phase, strict=True)) for phase in phases]}


def test_a_phase_gains_a_user_every_60_over_spawn_rate_seconds() -> None:
    found = _of(_phases((1, 2, 120)))
    assert [found.users_at(second) for second in (0, 29.9, 30, 59.9, 60, 119.9, 120)] == [1, 1, 2, 2, 3, 4, 0]


def test_each_phase_starts_with_its_own_number_of_users() -> None:
    found = _of(_phases((1, 60, 10), (3, 0, 5)))
    assert [found.users_at(second) for second in (9.5, 10, 14.9, 15)] == [10, 3, 3, 0]
    assert found.boundaries_s == (0, 10, 15)


def test_stairs_divide_their_duration_into_equal_steps() -> None:
    found = _of({"TrafficType": "STAIRS", "Stairs": {"DurationInSeconds": 180, "NumberOfSteps": 3, "UsersPerStep": 2}})
    assert [found.users_at(second) for second in (0, 59, 60, 120, 179, 180)] == [2, 2, 4, 6, 6, 0]


def test_the_job_duration_cuts_the_traffic() -> None:
    found = _of(_phases((1, 6, 120), (5, 0, 60)), longest_s=25)
    assert found.end_s == 25
    assert [change.at_s for change in found.changes] == [0, 10, 20]


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
        _of(pattern)


@given(PHASES)
def test_users_only_grow_within_a_phase_and_by_one_at_a_time(phases: list[dict[str, int]]) -> None:
    found = _of({"TrafficType": "PHASES", "Phases": phases})
    starts = found.boundaries_s[:-1]
    assert found.end_s == sum(phase["DurationInSeconds"] for phase in phases)
    for earlier, later in zip(found.changes, found.changes[1:], strict=False):
        assert earlier.at_s < later.at_s
        if later.at_s not in starts:
            assert later.users == earlier.users + 1
    for start, phase in zip(starts, phases, strict=True):
        assert found.users_at(start) == phase["InitialNumberOfUsers"]
