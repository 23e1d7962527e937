"""The files of a simulation: the frontier's ends, and traffic that `--trace` reads again."""

from datetime import UTC, datetime

import numpy as np

from inference_recommender.simulate.policy import Timing, TrafficLoad
from inference_recommender.simulate.seeds import SimulationCase, Tolerance, Workers
from inference_recommender.simulate.simulation_file import FRONTIER, frontier_results, trace_csv
from inference_recommender.simulate.trace import Trace, parse_trace
from tests.inference_recommender.simulate.service import NEVER_LATE, policy

START = datetime(2026, 11, 27, 6, 30, tzinfo=UTC)


def test_written_traffic_is_read_again() -> None:
    load = TrafficLoad(start=START, rates=np.array([1.25, 2.0, 0.0, 4.5]))
    again = parse_trace("trace.csv", trace_csv(load), "abc", "trace.csv").load(0)
    assert (again.start, again.rates.tolist()) == (START, load.rates.tolist())


def test_a_long_frontier_keeps_its_ends_and_leaves_out_compared_policies() -> None:
    traffic = Trace(name="t.csv", sha256="abc", start=START, rates=np.full(10, 5.0))
    case = SimulationCase(traffic=traffic, curve=NEVER_LATE, timing=Timing(), tolerance=Tolerance())
    policies = [policy(target_invocations_per_instance=100.0 + number) for number in range(40)]
    frontier = [Workers(case).run(each, [0], lambda _: None) for each in policies]
    stored = [each.policy for each in frontier_results(frontier, {"chosen": frontier[3]}).values()]
    assert len(set(stored)) == len(stored) == FRONTIER
    assert (stored[0], stored[-1]) == (policies[0], policies[-1])
    assert policies[3] not in stored
