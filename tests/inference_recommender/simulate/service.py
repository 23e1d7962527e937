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
POLICY = Policy(target_invocations_per_instance=100.0, min_capacity=1, max_capacity=50)
TIMING = Timing(provisioning_s=120, provisioning_spread=0, model_load_s=60, removal_s=60, metric_delay_s=0)
"""An instance serves three minutes after its request, and is gone a minute after its removal."""


def course(
    per_minute: Sequence[float], policy: Policy = POLICY, timing: Timing = TIMING, losses: tuple[ZoneLoss, ...] = ()
) -> dict[str, list[int]]:
    """Returns desired, serving and paid instances at the beginning of each minute, for exact invocations a minute."""
    arrivals = np.array(per_minute, dtype=float)
    load = TrafficLoad(start=FIRST_MONDAY, rates=arrivals / 60, losses=losses)
    run = FleetSimulation(load, policy, NEVER_LATE, timing, arrivals, Random(0))
    run.go()
    return {name: [int(value) for value in run.columns[name]] for name in ("desired", "serving", "paid")}


def policy(**changes: Any) -> Policy:
    return replace(POLICY, **changes)


def timing(**changes: Any) -> Timing:
    return replace(TIMING, **changes)
