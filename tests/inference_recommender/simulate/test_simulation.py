"""Traces through fleets: queues, drops, retries, cost, the lower bound, and seeds in processes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.simulate.curve import LatencyCurve
from inference_recommender.simulate.policy import (
    FIRST_MONDAY,
    Policy,
    RetryingCallers,
    SeedOutcome,
    Timing,
    TrafficLoad,
    ZoneLoss,
)
from inference_recommender.simulate.policy_result import PolicyResult, Tolerance
from inference_recommender.simulate.seeds import InProcess, Processes, SimulationCase
from inference_recommender.simulate.shapes import SHAPES, shape
from inference_recommender.simulate.simulation import simulate, without_policy
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
CASE = SimulationCase(traffic=shape("flash-sale", OBJECTIVE, Sizing()), curve=CURVE, timing=Timing())


def constant(rate: float, minutes: int = 60, callers: RetryingCallers | None = None) -> TrafficLoad:
    return TrafficLoad(start=FIRST_MONDAY, step_s=60, rates=np.full(minutes, rate), callers=callers)


def fixed(count: int) -> Policy:
    return without_policy(POLICY, count)


def test_what_an_instance_cannot_answer_waits_and_is_dropped_after_a_minute() -> None:
    """150 a second on an instance that answers 100: the queue is a minute long after two minutes, and half as much as
    is answered is dropped from then on.
    """
    found = simulate(constant(150), fixed(1), EXACT, Timing(), 0)
    assert found.minutes_over_objective == 60
    assert found.late_share == pytest.approx(1, abs=1e-3)
    assert found.dropped == pytest.approx(58 * 60 * 50, rel=0.01)
    assert found.highest_rate == pytest.approx(150, rel=0.05)
    assert found.minutes_extrapolated == 60


def test_a_fleet_within_its_capacity_keeps_the_objective() -> None:
    found = simulate(constant(90), fixed(1), EXACT, Timing(), 0)
    assert (found.minutes_over_objective, found.dropped) == (0, 0)
    assert found.instance_hours == found.lower_bound_hours == 1
    assert found.requests == pytest.approx(90 * 3600, rel=0.01)
    assert 0 < found.late_share < 0.01


def test_callers_that_retry_make_an_overload_last() -> None:
    """A burst of three minutes is over in a few without retries; with them the queue stays longer and more is late."""
    rates = np.full(60, 80.0)
    rates[10:13] = 130.0
    load = TrafficLoad(start=FIRST_MONDAY, step_s=60, rates=rates)
    patient = simulate(load, fixed(1), EXACT, Timing(), 0)
    storm = simulate(replace(load, callers=RetryingCallers(timeout_s=1.0, retries=2)), fixed(1), EXACT, Timing(), 0)
    assert patient.minutes_over_objective < storm.minutes_over_objective
    assert patient.late < storm.late
    assert storm.requests == patient.requests, "a request that is sent again is one request"


def test_a_fleet_without_instances_answers_nothing_until_one_is_replaced() -> None:
    """Seven minutes: one to notice, five to provision, one to load; the queue that is dropped is not answered later."""

    load = replace(constant(50, 20), losses=(ZoneLoss(at_s=300, zones=2),))
    found = simulate(load, fixed(1), EXACT, Timing(provisioning_spread=0), 0)
    assert found.minutes_over_objective == pytest.approx(7, abs=1)
    assert found.dropped == pytest.approx(7 * 60 * 50, rel=0.02)


@pytest.mark.parametrize("name", SHAPES)
def test_the_lower_bound_is_below_every_fleet_that_keeps_the_objective(name: str) -> None:
    traffic = shape(name, OBJECTIVE, Sizing(availability_zones=3))  # type: ignore[arg-type]
    for count in (12, 20, 30):
        found = simulate(traffic.load(0), fixed(count), EXACT, Timing(), 0)
        assert found.instance_hours >= found.lower_bound_hours or found.minutes_over_objective > 0


@given(rates=st.lists(st.integers(0, 400), min_size=5, max_size=40), seed=st.integers(0, 10), high=st.booleans())
def test_no_request_is_lost_or_made(rates: list[int], seed: int, high: bool) -> None:
    """Whatever comes, shares are shares, fleets keep their bounds, and the same seed has the same outcome."""
    policy = replace(POLICY, max_capacity=6, concurrent_requests_per_instance=2.0 if high else None)
    load = TrafficLoad(
        start=FIRST_MONDAY,
        step_s=60,
        rates=np.array(rates, dtype=float),
        callers=RetryingCallers(timeout_s=1, retries=2),
    )
    found = simulate(load, policy, CURVE, Timing(), seed, timeline=True)
    assert 0 <= found.late <= found.requests * (1 + 1e-9)
    assert 0 <= found.dropped <= found.requests
    assert (found.timeline["desired"] >= 2).all()
    assert (found.timeline["desired"] <= 6).all()
    again = simulate(load, policy, CURVE, Timing(), seed)
    assert (again.requests, again.late, again.instance_hours) == (found.requests, found.late, found.instance_hours)


def test_processes_find_what_one_process_finds_in_the_order_of_seeds() -> None:
    done: list[int] = []
    here = InProcess(CASE).run(POLICY, range(5, 9), lambda count: None)
    with Processes(CASE, 2) as pool:
        assert pool.run(POLICY, range(5, 9), done.append) == here
    assert [each.seed for each in here] == [5, 6, 7, 8]
    assert sum(done) == 4


def outcomes(*minutes_over: float) -> tuple[SeedOutcome, ...]:
    empty = simulate(constant(50, 5), fixed(1), EXACT, Timing(), 0)
    return tuple(replace(empty, seed=seed, minutes_over_objective=over) for seed, over in enumerate(minutes_over))


def test_a_tolerance_is_of_a_month_and_of_a_share_of_seeds() -> None:
    """With 99 %, one of 100 seeds may be over; five minutes a month are ten of two months, and five of a day."""
    tolerance = Tolerance(minutes=5, confidence=0.99)
    assert tolerance.allowed(1440) == 5
    assert tolerance.allowed(60 * 24 * 60) == 10

    def result(*minutes_over: float) -> PolicyResult:
        return PolicyResult(
            policy=POLICY,
            outcomes=outcomes(*minutes_over),
            minutes=1440,
            price_per_hour_usd=0.5,
            tolerance=tolerance,
        )

    one, two = result(*[5.0] * 99, 6.0), result(*[5.0] * 98, 6.0, 6.0)
    assert (one.is_within_tolerance, one.exceeding, one.minutes_over_at_confidence) == (True, 1, 5)
    assert (two.is_within_tolerance, two.exceeding, two.minutes_over_at_confidence) == (False, 2, 6)
    assert not result(*[0.0] * 9, 6.0).is_within_tolerance, "of ten seeds none may be over"
    assert one.usd(3.0) == 1.5
