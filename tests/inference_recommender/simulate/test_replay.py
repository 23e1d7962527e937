"""The simulation predicts how the local account scaled an endpoint: a recorded run, with real Tritons in real time.

The record is data: commit 1d7456d has the script that made it. The account decides with its own code in
`local_aws/scaling`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.simulate.policy import Policy, Timing
from inference_recommender.simulate.simulation import simulate
from inference_recommender.simulate.trace import parse_trace
from tests.inference_recommender.simulate.service import NEVER_LATE, course

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded_scaling.json").read_text("utf-8"))
MINUTES = len(RECORDED["requests_per_second"])
POLICY = Policy(
    target_invocations_per_instance=RECORDED["policy"]["TargetValue"],
    min_capacity=RECORDED["policy"]["MinCapacity"],
    max_capacity=RECORDED["policy"]["MaxCapacity"],
    scale_out_cooldown_s=RECORDED["policy"]["ScaleOutCooldown"],
    scale_in_cooldown_s=RECORDED["policy"]["ScaleInCooldown"],
)
TIMING = Timing(
    provisioning_s=0,
    model_load_s=RECORDED["start_s"],
    removal_s=RECORDED["stop_s"],
    metric_delay_s=0,  # the account's alarms see a minute two seconds after its end
)


def recorded(second: float) -> tuple[int, int]:
    """Returns desired instances and those in service at a second of the run."""
    seen = [each for each in RECORDED["course"] if each[0] <= second] or RECORDED["course"][:1]
    return seen[-1][1], seen[-1][2]


def most_apart(found: Mapping[str, Sequence[float]]) -> float:
    """Returns the most instances, desired or serving, by which a prediction is off in the middle of a minute."""
    counts = [recorded(minute * 60 + 30) for minute in range(MINUTES)]
    predicted = list(zip(found["desired"], found["serving"], strict=True))
    assert len(predicted) == MINUTES
    return max(abs(was - is_) for pair in zip(counts, predicted, strict=True) for was, is_ in zip(*pair, strict=True))


def test_its_invocations_are_predicted_within_one_instance_at_every_minute() -> None:
    assert most_apart(course(RECORDED["invocations_by_minute"], POLICY, TIMING)) <= 1


@pytest.mark.parametrize("seed", range(3))
def test_its_trace_is_predicted_within_one_instance_at_every_minute(seed: int) -> None:
    """The trace alone is known, not when requests arrived."""
    lines = [f"{minute * 60},{rate}" for minute, rate in enumerate(RECORDED["requests_per_second"])]
    load = parse_trace("recorded", "\n".join(lines), "", "recorded").load(seed)
    found = simulate(load, POLICY, NEVER_LATE, TIMING, seed).course()
    assert most_apart({name: found[name].tolist() for name in ("desired", "serving")}) <= 1


@pytest.mark.parametrize(
    "changes",
    [
        {"target_invocations_per_instance": POLICY.target_invocations_per_instance * 2},
        {"scale_in": False},
        {"max_capacity": 2},
    ],
)
def test_another_policy_predicts_another_course(changes: dict[str, Any]) -> None:
    assert most_apart(course(RECORDED["invocations_by_minute"], replace(POLICY, **changes), TIMING)) > 1
