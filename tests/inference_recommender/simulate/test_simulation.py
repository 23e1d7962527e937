"""Traces through fleets: queues, drops, cost, the lower bound, tolerance, and seeds in processes."""

from dataclasses import replace

import numpy as np
import pytest

from inference_recommender.simulate.curve import LatencyCurve
from inference_recommender.simulate.policy import FIRST_MONDAY, Policy, Timing, TrafficLoad, ZoneLoss
from inference_recommender.simulate.seeds import PolicyResult, SimulationCase, Tolerance, Workers
from inference_recommender.simulate.shapes import shape
from inference_recommender.simulate.simulation import SeedOutcome, simulate
from workloads import LatencyObjective, Sizing

CURVE = LatencyCurve(
    rates=(0.0, 100.0),
    late_shares=(1e-6, 0.01),
    capacity=100.0,
    saturation=100.0,
    measured_up_to=100.0,
    limit_s=0.05,
    allowed=0.01,
    spread=0.05,
)
EXACT = replace(CURVE, spread=0.0)
OBJECTIVE = LatencyObjective(
    percentile="P99", model_latency_ms=50.0, peak_invocations_per_minute=60_000, trough_invocations_per_minute=6_000
)
POLICY = Policy(target_invocations_per_instance=3000.0, min_capacity=2, max_capacity=40)


def on_fixed_fleet(load: TrafficLoad, count: int, timing: Timing | None = None) -> SeedOutcome:
    policy = replace(POLICY, min_capacity=count, max_capacity=count)
    return simulate(load, policy, EXACT, timing or Timing(), 0).outcome(0)


def constant(rate: float, minutes: int = 60, losses: tuple[ZoneLoss, ...] = ()) -> TrafficLoad:
    return TrafficLoad(start=FIRST_MONDAY, rates=np.full(minutes, rate), losses=losses)


def test_requests_above_the_capacity_wait_and_are_dropped_after_a_minute() -> None:
    """150 a second on an instance that answers 100: after two minutes the queue is a minute long."""
    found = on_fixed_fleet(constant(150), 1)
    assert found.minutes_over_objective == found.minutes_extrapolated == 60
    assert found.late_share == pytest.approx(1, abs=1e-3)
    assert found.dropped == pytest.approx(58 * 60 * 50, rel=0.01)
    assert found.highest_rate == pytest.approx(150, rel=0.05)


def test_the_requests_in_a_minute_have_the_dispersion_of_the_arrivals() -> None:
    load = constant(100, minutes=5000)
    requests = simulate(load, POLICY, EXACT, Timing(), 0, 20.0).arrivals
    assert requests.mean() == pytest.approx(6000, rel=0.01)
    assert requests.var() / requests.mean() == pytest.approx(20, rel=0.1)


def test_a_fleet_within_its_capacity_meets_the_objective() -> None:
    found = on_fixed_fleet(constant(90), 1)
    assert (found.minutes_over_objective, found.dropped) == (0, 0)
    assert found.instance_hours == found.lower_bound_hours == 1
    assert found.requests == pytest.approx(90 * 3600, rel=0.01)
    assert 0 < found.late_share < 0.01


def test_a_fleet_without_instances_answers_nothing_until_one_is_replaced() -> None:
    """Seven minutes: one to detect, five to provision, one to load."""
    load = constant(50, 20, losses=(ZoneLoss(at_s=300, zones=2),))
    found = on_fixed_fleet(load, 1, Timing(provisioning_spread=0))
    assert found.minutes_over_objective == pytest.approx(7, abs=1)
    assert found.dropped == pytest.approx(7 * 60 * 50, rel=0.02)


def test_processes_return_the_outcomes_of_one_process_in_the_order_of_seeds() -> None:
    traffic = shape("flash-sale", OBJECTIVE, Sizing())
    case = SimulationCase(traffic=traffic, curve=CURVE, timing=Timing(), tolerance=Tolerance())
    done: list[int] = []
    here = Workers(case).run(POLICY, range(5, 9), lambda count: None)
    with Workers(case, processes=2) as pool:
        assert pool.run(POLICY, range(5, 9), done.append) == here
    assert [each.seed for each in here.outcomes] == [5, 6, 7, 8]
    assert sum(done) == 4


def test_a_tolerance_is_of_a_month_and_of_a_share_of_seeds() -> None:
    """With 99 %, one of 100 seeds may be over; five minutes a month are ten of two months, and five of a day."""
    tolerance = Tolerance(minutes=5, confidence=0.99)
    assert (tolerance.allowed(1440), tolerance.allowed(60 * 24 * 60)) == (5, 10)
    empty = on_fixed_fleet(constant(50, 5), 1)

    def result(*minutes_over: float) -> PolicyResult:
        outcomes = tuple(replace(empty, minutes_over_objective=over) for over in minutes_over)
        return PolicyResult(policy=POLICY, outcomes=outcomes, tolerance=tolerance, allowed_minutes=5)

    one, two = result(*[5.0] * 99, 6.0), result(*[5.0] * 98, 6.0, 6.0)
    assert (one.is_within_tolerance, one.exceeding(), one.minutes_over_at_confidence) == (True, 1, 5)
    assert (two.is_within_tolerance, two.exceeding(), two.minutes_over_at_confidence) == (False, 2, 6)
    assert not result(*[0.0] * 9, 6.0).is_within_tolerance, "of ten seeds none may be over"
