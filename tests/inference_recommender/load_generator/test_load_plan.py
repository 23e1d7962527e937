"""Plans that the generator rejects, users over time from the API's TrafficPattern, and the moments of arrivals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomllib

from inference_recommender.load_generator.load_plan import (
    Arrivals,
    LoadPlan,
    TrafficPattern,
    arrival_times,
    schedule,
)
from tests.builders import message_of
from workloads.errors import InvalidDocument

ARRIVALS = {"arrivals": {"invocations_per_minute": 60.0, "duration_in_seconds": 1.0}}
CASES = tomllib.loads(Path(__file__).with_name("plan_refusals.toml").read_text("utf-8"))["case"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["message"][:60])
def test_a_wrong_plan_is_rejected(tmp_path: Path, case: dict[str, Any]) -> None:
    file = tmp_path / "plan.json"
    document = {"url": "http://h/", "payloads": "p", **case["plan"]}
    file.write_text(json.dumps({key: value for key, value in document.items() if value != "none"}), "utf-8")
    assert message_of(InvalidDocument, LoadPlan.from_json, file) == f"{file}: {case['message']}"


def _phases(*phases: tuple[int, int, int]) -> dict[str, Any]:
    keys = ("InitialNumberOfUsers", "SpawnRate", "DurationInSeconds")
    return {"TrafficType": "PHASES", "Phases": [dict(zip(keys, phase, strict=True)) for phase in phases]}


STAIRS = {"TrafficType": "STAIRS", "Stairs": {"DurationInSeconds": 180, "NumberOfSteps": 3, "UsersPerStep": 2}}


@pytest.mark.parametrize(
    ("pattern", "longest_s", "users"),
    [
        (_phases((1, 2, 120)), None, {0: 1, 29.9: 1, 30: 2, 59.9: 2, 60: 3, 119.9: 4, 120: 0}),
        (_phases((1, 60, 10), (3, 0, 5)), None, {9.5: 10, 10: 3, 14.9: 3, 15: 0}),
        (STAIRS, None, {0: 2, 59: 2, 60: 4, 120: 6, 179: 6, 180: 0}),
        (_phases((1, 6, 120), (5, 0, 60)), 25, {0: 1, 10: 2, 20: 3, 24.9: 3, 25: 0}),
    ],
    ids=["a user every 60 / SpawnRate seconds", "each phase has its own start", "equal steps", "cut"],
)
def test_the_users_follow_the_pattern(
    pattern: dict[str, Any], longest_s: float | None, users: dict[float, int]
) -> None:
    planned = schedule(TrafficPattern.model_validate(pattern, strict=False), longest_s)
    assert {second: planned.users_at(second) for second in users} == users


def test_arrivals_are_a_poisson_process_of_the_rate() -> None:
    arrivals = Arrivals(invocations_per_minute=60_000, duration_in_seconds=100, seed=1)
    times = arrival_times(arrivals)
    assert (arrival_times(arrivals.cut(50)) == times[times < 50]).all()
    assert len(times) == pytest.approx(100_000, abs=5 * 100_000**0.5)
    gaps_ms = np.diff(times) * 1000
    assert np.percentile(gaps_ms, [50, 95]) == pytest.approx([np.log(2), np.log(20)], rel=0.02)
