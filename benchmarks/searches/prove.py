"""Proves true recommendations and inflated ones: on simulated services, whose capacity is known, and on a real Triton.

For each service (simulated_service.py) a fleet is sized for spellcheck's peak, once by its true capacity and once by
`INFLATED` times that. `prove`'s own code proves each recommendation with `--seeds` seeds in virtual time. The last row
of a service is the test at the rate at which the percentile is exactly the limit: every clear verdict is an error.

    python benchmarks/searches/prove.py [--seeds N] [--max-duration-s S] [SERVICE ...]
    python benchmarks/searches/prove.py --triton RUNS [--capacity N]

With --triton, `prove` itself asks a Triton on this machine, which serves spellcheck as it was built for `cpu`. Its
capacity is searched for first, or given. What else the machine has to do is in the load average, and in the latencies.

Exits with 1 where fewer than 95 % of the true ones pass or of the inflated ones fail. The last line is one JSON
document.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, Python finds only this folder
from benchmarks.searches.simulated_service import (
    BATCHING,
    MM1,
    NOISY,
    STALLING,
    Service,
    SimulatedService,
    true_capacity_per_minute,
)
from inference_recommender.capacity.probe import ProbeRecords
from inference_recommender.cli.prove import DURATION_S
from inference_recommender.measure.prove.proving import Proving
from inference_recommender.measure.prove.sequential import SequentialTest, looks_s, warm_up
from inference_recommender.measure.system import SystemUnderTest
from inference_recommender.measurement import limit_of
from inference_recommender.sizing.fleet import Demand, fleet
from local_aws.process.triton import TritonServer
from workloads import ROOT, Candidate, Provenance, Recommendation, Workload, load_artifact, load_workload

SERVICES = {"batching": BATCHING, "stalling": STALLING, "M/M/1": MM1, "noisy": NOISY}
INFLATED = 1.3
ENOUGH = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """The verdicts on one kind of recommendation, over all seeds."""

    service: str
    sized_by: str
    capacity_per_minute: float
    instances: int
    peak_of_capacity: float
    """The rate of an instance at the peak over the true capacity; 1 at the limit."""
    loss_of_capacity: float | None
    verdicts: Mapping[str, int]
    passed: float | None
    """The share of verdicts that are right; None where none would be."""
    median_s: float
    """Seconds of load, warming up included."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("services", nargs="*", metavar="SERVICE", help=f"default: {', '.join(SERVICES)}")
    parser.add_argument("--seeds", type=int, default=100, metavar="N")
    parser.add_argument("--max-duration-s", type=float, default=DURATION_S, metavar="S")
    parser.add_argument("--triton", type=int, metavar="RUNS", help="so many proofs of each kind on a real Triton")
    parser.add_argument("--capacity", type=float, metavar="N", help="of that Triton; default: searched for")
    options = parser.parse_args()
    workload = load_workload("spellcheck").workload
    if options.triton:
        return on_triton(workload, options.triton, options.capacity, options.max_duration_s)
    rows: list[Row] = []
    print("service   sized by  count  peak  loss  kept missed unclear     s", flush=True)
    for name in options.services or SERVICES:
        for row in rows_of(name, workload, options.seeds, options.max_duration_s):
            rows.append(row)
            print(_line(row), flush=True)
    print(json.dumps({"seeds": options.seeds, "rows": [asdict(row) for row in rows]}))
    return int(any(row.passed is not None and row.passed < ENOUGH for row in rows))


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
    """Returns what the recommender would write for that capacity of an instance."""
    sized = fleet(max_invocations_per_minute, Demand.of(workload.latency_objective), workload.sizing)
    chosen = Candidate(
        instance_type="simulated",
        max_invocations_per_minute=max_invocations_per_minute,
        instance_count=sized.instance_count,
        autoscaling=sized.autoscaling,
        meets_objective=True,
        reason="",
    )
    provenance = Provenance(
        measured_on="local",
        machine="",
        job_name="",
        job_arn="",
        traffic="",
        percentile="P99",
        measured_at="",
        region="",
        run="",
    )
    return Recommendation(
        workload=workload.name,
        target=workload.hosting.target,
        archive_sha256="simulated",
        objective=workload.latency_objective,
        recommended=chosen,
        candidates=(chosen,),
        provenance=provenance,
    )


class Timed:
    """A simulated service, with the seconds for which it was loaded."""

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


def on_triton(workload: Workload, runs: int, capacity: float | None, longest_s: float) -> int:
    """Proves by the command itself; true and inflated recommendations take turns."""
    kinds, done = {"truth": 1.0, f"{INFLATED:g} times": INFLATED}, list[dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="prove_") as scratch, _served(Path(scratch)) as url:
        capacity = capacity or _searched(url, Path(scratch))
        print(
            f"capacity {capacity:,.0f} invocations/min\nsized by   count  verdict  decided by     sent  latency  load"
        )
        for sized_by, factor in [*kinds.items()] * runs:
            file = Path(scratch) / "recommendation.json"
            recommended = recommendation(workload, capacity * factor).model_copy(
                update={"target": "cpu", "archive_sha256": load_artifact(ROOT, "spellcheck", "cpu").archive_sha256}
            )
            recommended.write_json(file)
            began, load = time.monotonic(), os.getloadavg()[0]
            asked = ["--from", str(file), "--max-duration-s", str(longest_s), "--runs", scratch]
            proof = _asked("prove", url, *asked)
            seconds = time.monotonic() - began
            done.append({"sized_by": sized_by, "seconds": seconds, "load_average": load, "proof": proof})
            chosen = recommended.recommended
            assert chosen is not None
            latency, low, high = (
                "unknown" if ms is None else f"{ms:.1f}" for ms in (proof["latency_ms"], *proof["latency_interval_ms"])
            )
            print(
                f"{sized_by:9} {chosen.instance_count:6}  {proof['verdict']:7}  {proof['scenario']:13} "
                f"{proof['invocations_per_minute']:6,.0f}  {latency} ({low} to {high})  {load:.1f}",
                flush=True,
            )
    print(json.dumps({"capacity_per_minute": capacity, "runs": done}))
    right = {"truth": "kept"}
    wrong = sum(each["proof"]["verdict"] != right.get(each["sized_by"], "missed") for each in done)
    return int(wrong > (1 - ENOUGH) * len(done))


@contextmanager
def _served(scratch: Path) -> Iterator[str]:
    """Yields the address of a Triton that serves spellcheck, built for `cpu`."""
    artifact = load_artifact(ROOT, "spellcheck", "cpu")
    with TritonServer.start(
        ROOT / "build/spellcheck/cpu/repository",
        default_model=artifact.default_model,
        environment=artifact.environment,
        log_file=scratch / "triton.log",
    ) as server:
        yield server.invocations_url


def _searched(url: str, scratch: Path) -> float:
    found = _asked("run", url, "--runs", str(scratch))
    return float(found["candidates"][0]["max_invocations_per_minute"])


def _asked(command: str, url: str, *more: str) -> dict[str, Any]:
    """Returns the JSON document of a command; its words go to stderr."""
    program = [sys.executable, "-m", "inference_recommender", command, "spellcheck", "--url", url, "--json", *more]
    done = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{command} ended with exit code {done.returncode} and without a result.")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _line(row: Row) -> str:
    loss = "-" if row.loss_of_capacity is None else f"{row.loss_of_capacity:.2f}"
    counts = (row.verdicts.get(verdict, 0) for verdict in ("kept", "missed", "unclear"))
    kept, missed, unclear = counts
    return (
        f"{row.service:9} {row.sized_by:9} {row.instances:5} {row.peak_of_capacity:5.2f} {loss:>5} "
        f"{kept:5} {missed:6} {unclear:7} {row.median_s:5.0f}"
    )


if __name__ == "__main__":
    sys.exit(main())
