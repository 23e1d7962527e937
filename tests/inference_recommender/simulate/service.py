"""A service that is never the bottleneck, fixed times, and the course of a load through a policy, minute by minute."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from inference_recommender.simulate.curve import LatencyCurve
from inference_recommender.simulate.policy import FIRST_MONDAY, Policy, Timing, TrafficLoad, ZoneLoss
from inference_recommender.simulate.simulation import FleetSimulation

NEVER_LATE = LatencyCurve(
    rates=(0.0, 1e6),
    late_shares=(1e-6, 1e-6),
    capacity=1e6,
    saturation=1e6,
    measured_up_to=1e6,
    limit_s=0.05,
    allowed=0.01,
)
TARGET = 100.0
"""Invocations per minute and instance in the cases worked by hand."""
POLICY = Policy(target_invocations_per_instance=TARGET, min_capacity=1, max_capacity=50)
TIMING = Timing(provisioning_s=120, provisioning_spread=0, model_load_s=60, removal_s=60, metric_delay_s=0)
"""An instance serves three minutes after it is asked for, and is gone a minute after it is not wanted."""


def course(
    per_minute: Sequence[float], policy: Policy = POLICY, timing: Timing = TIMING, losses: tuple[ZoneLoss, ...] = ()
) -> dict[str, list[int]]:
    """Returns desired and serving instances and those paid for, at the beginning of each minute.

    `per_minute` are the invocations of each minute, exactly.
    """
    steps = 60 // policy.step_s
    arrivals = np.repeat(np.array(per_minute, dtype=float) / steps, steps)
    load = TrafficLoad(start=FIRST_MONDAY, step_s=policy.step_s, rates=arrivals / policy.step_s, losses=losses)
    run = FleetSimulation(load, policy, NEVER_LATE, timing, arrivals, Random(0))
    run.go()
    return {name: [int(value) for value in run.columns[name][::steps]] for name in ("desired", "serving", "paid")}


def policy(**changes: Any) -> Policy:
    return replace(POLICY, **changes)


def timing(**changes: Any) -> Timing:
    return replace(TIMING, **changes)
