"""A simulation's folder keeps the ends of the frontier, traffic that `--trace` reads again, and whole figures."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from inference_recommender.simulate.kept import FRONTIER, Named, WorstDay, keep, on_frontier, outcomes, trace_csv
from inference_recommender.simulate.policy import Load
from inference_recommender.simulate.result import Result, Tolerance
from inference_recommender.simulate.seeds import Case, Here
from inference_recommender.simulate.trace import even_trace, parse_trace
from tests.inference_recommender.simulate.service import NEVER_LATE, TIMING, policy
from workloads import load_workload

START = datetime(2026, 11, 27, 6, 30, tzinfo=UTC)


def case(rates: list[float]) -> Case:
    traffic = even_trace("t.csv", "abc", START.timestamp(), 60, rates)
    return Case(traffic=traffic, curve=NEVER_LATE, timing=TIMING)


def result(of: Case, target: float = 100.0, seeds: int = 2) -> Result:
    tried = policy(target_invocations_per_instance=target)
    return Result(
        policy=tried,
        outcomes=tuple(of.run(tried, seed) for seed in range(seeds)),
        minutes=of.traffic.load(0).minutes,
        price_per_hour_usd=2.0,
        tolerance=Tolerance(),
    )


def test_traffic_is_read_again_as_it_was() -> None:
    load = Load(start=START, step_s=10, rates=np.array([1.25, 2.0, 0.0, 4.5, 5.0, 6.0] * 2))
    again = parse_trace("trace.csv", trace_csv(load), "abc", "trace.csv").load(0)
    assert (again.start, again.step_s, again.rates.tolist()) == (START, 10, load.rates.tolist())


def test_a_long_frontier_keeps_its_ends_and_leaves_out_what_is_compared_already() -> None:
    of = case([5.0] * 10)
    frontier = [result(of, target=100.0 + number, seeds=1) for number in range(40)]
    kept = on_frontier(frontier, [Named(name="chosen", result=frontier[3])])
    policies = [each.result.policy for each in kept]
    assert len(policies) == len(set(policies)) == FRONTIER
    assert (policies[0], policies[-1]) == (frontier[0].policy, frontier[-1].policy)
    assert frontier[3].policy not in policies


def test_the_days_figures_are_the_whole_trace_s_where_that_is_a_day_or_less() -> None:
    of = case([2.0, 9.0, 30.0, 30.0, 1.0] * 60)
    found = result(of)
    day = WorstDay.of(of, found)
    under = day.under(found)
    assert under["instance_hours"] == pytest.approx(found.worst.instance_hours)
    assert under["late_share"] == pytest.approx(found.worst.late_share)
    assert under["minutes_over_objective"] == found.worst.minutes_over_objective
    assert under["cost_usd"] == pytest.approx(2.0 * under["instance_hours"])
    assert day.document()["start"] == "2026-11-27T06:30:00+00:00"
    assert len(under["latency_ms"]) == 300


def test_a_course_that_is_known_is_not_simulated_again() -> None:
    of = case([5.0] * 10)
    tried = policy()
    (outcome,) = Here(of, timeline=True).run(tried, [3], lambda _: None)
    found = replace(result(of), policy=tried, outcomes=(outcome,))
    assert found.course(of, 3) is outcome.timeline
    assert (result(of).course(of, 1)["attempts"] == of.run(tried, 1, timeline=True).timeline["attempts"]).all()


def test_where_no_instance_serves_the_latency_is_not_known() -> None:
    of = case([2.0] * 10)
    found = result(of)
    day = WorstDay.of(of, found)
    course = {name: values.copy() for name, values in day.course.items()}
    course["latency_s"][4] = np.inf
    assert replace(day, course=course).under(found)["latency_ms"][4] is None


def test_a_folder_has_a_line_for_each_policy_and_seed_and_the_traffic_where_it_is_given(tmp_path: Path) -> None:
    of = case([2.0] * 10)
    named = [Named(name="as recommended now", result=result(of)), Named(name="fixed fleet", result=result(of, 200.0))]
    lines = outcomes(named).splitlines()
    assert lines[0].startswith("policy,seed,minutes_over_objective,requests,")
    assert len(lines) == 1 + 2 * 2
    assert lines[1].startswith('"as recommended now: 1 to 50, 100/min each, cooldowns of 300 s out and 600 s in",0,')
    now, workload = datetime(2026, 11, 27, 7, tzinfo=UTC), load_workload("query_intent").workload
    folder = keep(tmp_path, now, {}, workload, named, "time,rate\n")
    assert folder.path.name == "query-intent-simulation-20261127-070000"
    assert sorted(each.name for each in folder.path.iterdir()) == [
        "outcomes.csv",
        "simulation.json",
        "trace.csv",
        "workload.json",
    ]
    assert keep(tmp_path, now, {}, workload, named, None).path.name == "query-intent-simulation-20261127-070000-2"
