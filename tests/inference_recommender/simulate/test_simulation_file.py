"""The files of a simulation: the frontier's ends, the worst day, outcomes, and traffic that `--trace` reads again."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from inference_recommender.simulate.policy import TrafficLoad
from inference_recommender.simulate.policy_result import PolicyResult, Tolerance
from inference_recommender.simulate.seeds import InProcess, SimulationCase
from inference_recommender.simulate.simulation_file import (
    FRONTIER,
    NamedResult,
    frontier_results,
    outcomes_csv,
    policy_day,
    trace_csv,
    worst_day,
)
from inference_recommender.simulate.trace import even_trace, parse_trace
from tests.inference_recommender.simulate.service import NEVER_LATE, TIMING, policy

START = datetime(2026, 11, 27, 6, 30, tzinfo=UTC)


def case(rates: list[float]) -> SimulationCase:
    traffic = even_trace("t.csv", "abc", START.timestamp(), 60, rates)
    return SimulationCase(traffic=traffic, curve=NEVER_LATE, timing=TIMING)


def result(of: SimulationCase, target: float = 100.0, seeds: int = 2) -> PolicyResult:
    tried = policy(target_invocations_per_instance=target)
    return PolicyResult(
        policy=tried,
        outcomes=tuple(of.run(tried, seed) for seed in range(seeds)),
        minutes=of.traffic.load(0).minutes,
        price_per_hour_usd=2.0,
        tolerance=Tolerance(),
    )


def test_traffic_is_read_again_as_it_was() -> None:
    load = TrafficLoad(start=START, step_s=10, rates=np.array([1.25, 2.0, 0.0, 4.5, 5.0, 6.0] * 2))
    again = parse_trace("trace.csv", trace_csv(load), "abc", "trace.csv").load(0)
    assert (again.start, again.step_s, again.rates.tolist()) == (START, 10, load.rates.tolist())


def test_a_long_frontier_keeps_its_ends_and_leaves_out_compared_policies() -> None:
    of = case([5.0] * 10)
    frontier = [result(of, target=100.0 + number, seeds=1) for number in range(40)]
    stored = frontier_results(frontier, [NamedResult(name="chosen", result=frontier[3])])
    policies = [each.result.policy for each in stored]
    assert len(policies) == len(set(policies)) == FRONTIER
    assert (policies[0], policies[-1]) == (frontier[0].policy, frontier[-1].policy)
    assert frontier[3].policy not in policies


def test_the_course_of_a_day_has_an_entry_per_minute_and_unknown_latencies() -> None:
    of = case([2.0, 9.0, 30.0, 30.0, 1.0] * 60)
    judged = result(of)
    course = dict(judged.course(of, judged.worst.seed))
    steps = worst_day(course, judged.policy.step_s, of.curve.allowed)
    assert steps == slice(0, 1440)
    course["latency_s"] = course["latency_s"].copy()
    course["latency_s"][4] = np.inf
    day = policy_day(course, steps, judged.policy.step_s)
    assert len(day.latency_ms) == len(day.instances_paid) == 300
    assert day.latency_ms[4] is None, "no instance serves"


def test_a_known_course_is_not_simulated_again() -> None:
    of = case([5.0] * 10)
    tried = policy()
    (outcome,) = InProcess(of, timeline=True).run(tried, [3], lambda _: None)
    known = replace(result(of), policy=tried, outcomes=(outcome,))
    assert known.course(of, 3) is outcome.timeline
    assert (result(of).course(of, 1)["attempts"] == of.run(tried, 1, timeline=True).timeline["attempts"]).all()


def test_the_outcomes_have_a_line_for_each_policy_and_seed() -> None:
    of = case([2.0] * 10)
    named = [
        NamedResult(name="recommended", result=result(of)),
        NamedResult(name="fixed fleet", result=result(of, 200.0)),
    ]
    lines = outcomes_csv(named).splitlines()
    assert lines[0].startswith("policy,seed,minutes_over_objective,requests,")
    assert len(lines) == 1 + 2 * 2
    assert lines[1].startswith('"recommended: 1 to 50, 100/min each, cooldowns of 300 s out and 600 s in",0,')
