"""Proofs of true and of inflated recommendations on simulated services of known capacity (simulated_service.py).

    python benchmarks/searches/prove.py [--seeds N]

A fleet is sized for spellcheck's peak, once by the true capacity and once by `INFLATED` times that. `prove`'s own code
tests each recommendation in virtual time. In the last row of a service the rate is exactly at the limit, where every
clear verdict is an error. For bursty arrivals (`BURSTY`) the second fleet is sized by the capacity for Poisson
arrivals. Exits with 1 if fewer than 95 % of the true ones pass or of the others fail.
"""

import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, Python finds only this folder
from benchmarks import goals, harness
from benchmarks.goals import Goal
from benchmarks.searches.simulated_service import SERVICES, SimulatedService, true_capacity_per_minute
from inference_recommender.measure.proving import DURATION_S, Proving, default_duration_s
from inference_recommender.measure.sequential import SequentialTest, looks_s, warm_up
from inference_recommender.measure.system import SystemUnderTest
from inference_recommender.measurement import limit_of
from inference_recommender.sizing.fleet import Demand, fleet
from tests.builders import a_recommendation
from workloads import POISSON, ArrivalProcess, Candidate, Recommendation, Workload, load_workload

INFLATED = 1.3
ENOUGH = 0.95
SYSTEM = SystemUnderTest(name="simulated", instance_type="simulated", measured_on="local", machine="simulated")
BURSTY = {
    "M/M/1": ArrivalProcess(process="gamma", cv=2.0),
    "batching": ArrivalProcess(process="on-off", burst_s=0.5, pause_s=0.5),
}
Row = dict[str, Any]
"""The verdicts on one kind of recommendation over all seeds. Rates are those of an instance over the true capacity."""


def main() -> int:
    seeds = harness.options(__doc__, seeds=(100, "of each service")).seeds
    workload = load_workload("spellcheck").workload
    rows: list[Row] = []
    print("service          sized by  count  peak  loss  kept missed unclear     s", flush=True)
    for name, arrivals in [*((name, POISSON) for name in SERVICES), *BURSTY.items()]:
        for row in rows_of(name, workload, seeds, arrivals):
            rows.append(row)
            _show(row)
    judged = [
        Goal(cell=f"{row['service']}, sized by {row['sized_by']}: right verdicts", figure=row["right"], limit=ENOUGH)
        for row in rows
        if row["right"] is not None
    ]
    return goals.finish("searches/prove", (), {"seeds": seeds, "rows": rows}, judged)


def rows_of(name: str, workload: Workload, seeds: int, arrivals: ArrivalProcess = POISSON) -> Iterator[Row]:
    service, limit = SERVICES[name], limit_of(workload.latency_objective)
    capacity = true_capacity_per_minute(service, limit.percentile, limit.bound_ms, arrivals=arrivals)
    other, of_other = f"{INFLATED:g} times", capacity * INFLATED
    if arrivals != POISSON:
        other, of_other = "Poisson", true_capacity_per_minute(service, limit.percentile, limit.bound_ms)
    for sized_by, rate, right in (("truth", capacity, "kept"), (other, of_other, "missed")):
        recommended = recommendation(workload, rate)
        verdicts, spent_s = Counter[str](), list[float]()
        for seed in range(seeds):
            simulated = SimulatedService(service, seed, arrivals)
            proving = Proving(
                recommendation=recommended,
                system=SYSTEM,
                probe=simulated.probe,
                arrivals=arrivals,
                longest_s=default_duration_s(arrivals, rate),
                sizing=workload.sizing,
            )
            proving.run()
            verdicts[proving.proof(machine="simulated", measured_at="", run="").verdict] += 1
            spent_s.append(simulated.now_s)
        peak, loss = proving.peak.per_instance, proving.loss.per_instance
        assert recommended.recommended is not None
        assert peak is not None
        yield {
            "service": name if arrivals == POISSON else f"{name}, {arrivals.process}",
            "sized_by": sized_by,
            "instances": recommended.recommended.instance_count,
            "peak": peak / capacity,
            "loss": None if loss is None else loss / capacity,
            "verdicts": dict(verdicts),
            "right": verdicts[right] / seeds,
            "median_s": statistics.median(spent_s),
        }
    if arrivals == POISSON:
        yield _at_the_limit(name, capacity, workload, seeds)


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


def _at_the_limit(name: str, capacity: float, workload: Workload, seeds: int) -> Row:
    limit, verdicts, spent_s = limit_of(workload.latency_objective), Counter[str](), list[float]()
    for seed in range(seeds):
        service = SimulatedService(SERVICES[name], seed)
        looks = looks_s(capacity, limit.percentile, DURATION_S / 2)
        test = SequentialTest(probe=service.probe, rate_per_minute=capacity, limit=limit, looks_s=looks)
        warm_up(service.probe, capacity, limit)
        verdicts[test.run()] += 1
        spent_s.append(service.now_s)
    row: Row = {"service": name, "sized_by": "the limit", "instances": 1, "peak": 1.0, "loss": None, "right": None}
    return {**row, "verdicts": dict(verdicts), "median_s": statistics.median(spent_s)}


def _show(row: Row) -> None:
    loss = "-" if row["loss"] is None else f"{row['loss']:.2f}"
    kept, missed, unclear = (row["verdicts"].get(verdict, 0) for verdict in ("kept", "missed", "unclear"))
    line = f"{row['service']:16} {row['sized_by']:9} {row['instances']:5} {row['peak']:5.2f} {loss:>5} {kept:5}"
    print(f"{line} {missed:6} {unclear:7} {row['median_s']:5.0f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
