"""Policies that are functions: the built-in ones on loads with a known course, and a user's own with its errors."""

from datetime import timedelta
from pathlib import Path
from random import Random

import numpy as np
import pytest

from inference_recommender.simulate.functions import growth_forecast, predictive_scaling, step_scaling
from inference_recommender.simulate.policy import FIRST_MONDAY, Observed, PolicyFunction, TrafficLoad
from inference_recommender.simulate.simulation import FleetSimulation
from inference_recommender.simulate.tracking import DAY_MINUTES
from tests.inference_recommender.simulate.service import NEVER_LATE, course, policy, timing
from workloads import UsageError

NOON = 12 * 60


def wanted(function: PolicyFunction, per_minute: list[float], serving: int = 10) -> int:
    """Returns what a function wants after these minutes from a midnight on, with a target of 100 and a capacity of 150.

    An instance serves four minutes after its request.
    """
    return function(
        Observed(
            time=FIRST_MONDAY + timedelta(minutes=len(per_minute)),
            invocations=np.array(per_minute, dtype=float),
            serving=serving,
            desired=serving,
            capacity=150.0,
            target=100.0,
            start_s=240.0,
            delay_s=0.0,
        )
    )


@pytest.mark.parametrize(
    ("per_minute", "instances"),
    [
        ([1000.0], 10),
        ([1001.0], 11),
        ([1300.0], 13),
        ([1600.0], 16),
        ([899.0] * 14, 10),
        ([899.0] * 15, 9),
    ],
)
def test_a_step_depends_on_how_far_the_datapoint_is_from_the_target(per_minute: list[float], instances: int) -> None:
    assert wanted(step_scaling, per_minute) == instances


def busy_noons(days: int, until: int) -> list[float]:
    """Returns days of 1,000 a minute, with 3,000 in the hour from noon on, until a minute of the last day."""
    day = [3000.0 if NOON <= minute < NOON + 60 else 1000.0 for minute in range(DAY_MINUTES)]
    return (day * days)[: (days - 1) * DAY_MINUTES + until]


@pytest.mark.parametrize("function", [predictive_scaling, growth_forecast])
def test_the_load_of_earlier_days_is_expected_again(function: PolicyFunction) -> None:
    """Eleven o'clock is quiet. At 11:55 new instances would serve at noon."""
    assert wanted(function, busy_noons(4, NOON - 60)) <= 11
    assert wanted(function, busy_noons(4, NOON - 4)) >= 20


def test_a_forecast_without_earlier_days_follows_the_load() -> None:
    assert wanted(predictive_scaling, [1000.0, 2000.0]) == 20
    rising = [1000 * 1.05**minute for minute in range(30)]
    assert wanted(growth_forecast, rising) > rising[-1] / 150 * 1.2


def test_a_users_function_decides_within_the_bounds_while_the_fleet_accepts_changes(tmp_path: Path) -> None:
    """Instances serve three minutes after their request; no change is possible before."""
    file = tmp_path / "mine.py"
    file.write_text("def wants(seen): return 60 if len(seen.invocations) > 1 else 0\n", "utf-8")
    found = course([100.0] * 8, policy(function=f"{file}:wants", min_capacity=2))
    assert found["desired"] == [2, 2, 50, 50, 50, 50, 50, 50]
    assert found["serving"][4:] == [2, 50, 50, 50]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "def wants(seen):\n    return 1 / 0\n",
            "failed for 2026-01-05 00:01 UTC: line 2: ZeroDivisionError: division",
        ),
        ("def wants(seen):\n    return 1.5\n", "returned 1.5 for 2026-01-05 00:01 UTC. Return a whole number"),
        ("def wants(seen):\n    return -1\n", "returned -1 for 2026-01-05 00:01 UTC. Return a whole number"),
        ("wants = (", "cannot be loaded: SyntaxError"),
        ("", "cannot be loaded: KeyError"),
    ],
)
def test_a_function_that_fails_is_named_with_the_minute(text: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(text, "utf-8")
    with pytest.raises(UsageError, match=f"--policy: {file}:wants {sentence}"):
        course([100.0] * 3, policy(function=f"{file}:wants"))


def test_a_function_sees_the_history_and_what_cloudwatch_shows(tmp_path: Path) -> None:
    """After the first of three minutes, CloudWatch shows the ten minutes before the start without the last one."""
    file = tmp_path / "minutes.py"
    file.write_text("def minutes(seen): return len(seen.invocations)\n", "utf-8")
    load = TrafficLoad(start=FIRST_MONDAY, rates=np.full(3, 1.0), history=np.full(10, 1.0))
    run = FleetSimulation(
        load, policy(function=f"{file}:minutes"), NEVER_LATE, timing(metric_delay_s=120), np.full(3, 60.0), Random(0)
    )
    run.go()
    assert run.capacity.desired == 9
