"""Proofs of true and of inflated recommendations on simulated services of known capacity (simulated_service.py).

    python benchmarks/searches/prove.py [--seeds N] [--max-duration-s S] [SERVICE ...]

A fleet is sized for spellcheck's peak, once by the true capacity and once by `INFLATED` times that. `prove`'s own code
tests each recommendation in virtual time. In the last row of a service the rate is exactly at the limit, where every
clear verdict is an error. Exits with 1 if fewer than 95 % of the true ones pass or of the inflated ones fail.
"""

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, Python finds only this folder
from benchmarks import harness
from benchmarks.searches.simulated_service import SERVICES, Service, SimulatedService, true_capacity_per_minute
from inference_recommender.capacity.probe import ProbeRecords
from inference_recommender.cli.prove import DURATION_S
from inference_recommender.measure.proving import Proving
from inference_recommender.measure.sequential import SequentialTest, looks_s, warm_up
from inference_recommender.measure.system import SystemUnderTest
from inference_recommender.measurement import limit_of
from inference_recommender.sizing.fleet import Demand, fleet
from tests.builders import a_recommendation
from workloads import Candidate, Recommendation, Workload, load_workload

INFLATED = 1.3
ENOUGH = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """The verdicts on one kind of recommendation over all seeds."""

    service: str
    sized_by: str
    capacity_per_minute: float
    instances: int
    peak_of_capacity: float
    """The rate of an instance at the peak over the true capacity; 1 at the limit."""
    loss_of_capacity: float | None
    verdicts: Mapping[str, int]
    passed: float | None
    """The share of right verdicts. None at the limit."""
    median_s: float
    """Seconds of load, with the warm-up."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("services", nargs="*", metavar="SERVICE", help=f"default: {', '.join(SERVICES)}")
    parser.add_argument("--seeds", type=int, default=100, metavar="N")
    parser.add_argument("--max-duration-s", type=float, default=DURATION_S, metavar="S")
    options = parser.parse_args()
    workload = load_workload("spellcheck").workload
    rows: list[Row] = []
    print("service   sized by  count  peak  loss  kept missed unclear     s", flush=True)
    for name in options.services or SERVICES:
        for row in rows_of(name, workload, options.seeds, options.max_duration_s):
            rows.append(row)
            print(_line(row), flush=True)
    goals = [
        {"goal": f"{row.service}, {row.sized_by}", "got": row.passed, "met": row.passed >= ENOUGH}
        for row in rows
        if row.passed is not None
    ]
    document = {"seeds": options.seeds, "rows": [asdict(row) for row in rows], "goals": goals}
    return harness.finish("searches/prove", (), document, goals)


def rows_of(name: str, workload: Workload, seeds: int, longest_s: float) -> list[Row]:
    service, limit = SERVICES[name], limit_of(workload.latency_objective)
    assert limit.latency_ms is not None
    capacity = true_capacity_per_minute(service, limit.percentile, limit.latency_ms)
    return [
        _proven(name, "truth", capacity, recommendation(workload, capacity), workload, seeds, longest_s, right="kept"),
        _proven(
            name,
            f"{INFLATED:g} times",
            capacity,
            recommendation(workload, capacity * INFLATED),
            workload,
            seeds,
            longest_s,
            right="missed",
        ),
        _at_the_limit(name, capacity, workload, seeds, longest_s),
    ]


def recommendation(workload: Workload, max_invocations_per_minute: float) -> Recommendation:
    """Returns a recommendation for an instance of that capacity."""
    sized = fleet(max_invocations_per_minute, Demand.of(workload.latency_objective), workload.sizing)
    chosen = Candidate(
        instance_type="simulated",
        max_invocations_per_minute=max_invocations_per_minute,
        instance_count=sized.instance_count,
        autoscaling=sized.autoscaling,
        meets_objective=True,
        reason="",
    )
    return a_recommendation(chosen, objective=workload.latency_objective)


class Timed:
    """A simulated service that counts the seconds of load."""

    def __init__(self, service: Service, seed: int) -> None:
        self.spent_s = 0.0
        self._simulated = SimulatedService(service, seed)

    def probe(self, rate_per_minute: float, duration_s: float) -> ProbeRecords:
        self.spent_s += duration_s
        return self._simulated.probe(rate_per_minute, duration_s)


def _proven(
    name: str,
    sized_by: str,
    capacity: float,
    recommended: Recommendation,
    workload: Workload,
    seeds: int,
    longest_s: float,
    *,
    right: str,
) -> Row:
    system = SystemUnderTest(name=name, instance_type="simulated", measured_on="local", machine="simulated")
    verdicts, spent_s = Counter[str](), list[float]()
    for seed in range(seeds):
        service = Timed(SERVICES[name], seed)
        proving = Proving(
            recommendation=recommended, system=system, probe=service.probe, longest_s=longest_s, sizing=workload.sizing
        )
        proving.run()
        verdicts[proving.proof(machine="simulated", measured_at="", run="").verdict] += 1
        spent_s.append(service.spent_s)
    peak, loss = proving.peak.per_instance, proving.loss.per_instance
    assert recommended.recommended is not None
    assert peak is not None
    return Row(
        service=name,
        sized_by=sized_by,
        capacity_per_minute=capacity,
        instances=recommended.recommended.instance_count or 0,
        peak_of_capacity=peak / capacity,
        loss_of_capacity=None if loss is None else loss / capacity,
        verdicts=dict(verdicts),
        passed=verdicts[right] / seeds,
        median_s=statistics.median(spent_s),
    )


def _at_the_limit(name: str, capacity: float, workload: Workload, seeds: int, longest_s: float) -> Row:
    limit, verdicts, spent_s = limit_of(workload.latency_objective), Counter[str](), list[float]()
    for seed in range(seeds):
        service = Timed(SERVICES[name], seed)
        looks = looks_s(capacity, limit.percentile, longest_s / 2)
        test = SequentialTest(probe=service.probe, rate_per_minute=capacity, limit=limit, looks_s=looks)
        warm_up(service.probe, capacity, limit)
        verdicts[test.run()] += 1
        spent_s.append(service.spent_s)
    return Row(
        service=name,
        sized_by="the limit",
        capacity_per_minute=capacity,
        instances=1,
        peak_of_capacity=1.0,
        loss_of_capacity=None,
        verdicts=dict(verdicts),
        passed=None,
        median_s=statistics.median(spent_s),
    )


def _line(row: Row) -> str:
    loss = "-" if row.loss_of_capacity is None else f"{row.loss_of_capacity:.2f}"
    kept, missed, unclear = (row.verdicts.get(verdict, 0) for verdict in ("kept", "missed", "unclear"))
    return (
        f"{row.service:9} {row.sized_by:9} {row.instances:5} {row.peak_of_capacity:5.2f} {loss:>5} "
        f"{kept:5} {missed:6} {unclear:7} {row.median_s:5.0f}"
    )


if __name__ == "__main__":
    sys.exit(main())
