"""Capacity of spellcheck in a real Triton by arrival process: the estimate beside the open-loop search.

  python -m model_build build spellcheck --target cpu
  python benchmarks/arrivals.py [--rounds 2] [--seconds 300]

The limit of P99 is `LIMIT_FACTOR` times the median latency of one user, so that fast and slow machines are alike.
In each case the search sends the process, between two minutes of closed-loop users that give the estimate. Gamma
arrivals have the coefficient of variation of the row. The replay is a recording of `RECORDED`, and its estimate is of
the process that fits it. A search without a capacity counts by its interval, and as outside without a lower end. Rates
are a minute. Goal: the estimate and the search are inside each other's interval in 9 of 10 cases. Idle loops hold the
cores awake, because a virtual core needs milliseconds to wake up. The load shares no core with the server, because it
would take more time from it during a search than during a test with users.

Two proofs under `BURSTY` come last, of fleets that the estimates size, for `BURSTY` less its error. Goal: the fleet
for Poisson arrivals is missed, and the fleet for `BURSTY` is kept.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import goals, harness
from benchmarks.goals import Goal
from benchmarks.plain_triton import PlainTriton, http_triton
from benchmarks.searches.prove import recommendation
from inference_recommender.capacity.arrivals import arrival_times
from inference_recommender.capacity.flow_equivalent import SettledPeriods, settled_periods
from inference_recommender.capacity.probe import Capacity
from inference_recommender.capacity.search import Search
from inference_recommender.load_generator.time_stamps import fitted
from inference_recommender.measure.load_test import LoadTest
from inference_recommender.measure.probe import GeneratorProbe
from inference_recommender.measure.proving import Proving, default_duration_s
from inference_recommender.measure.system import SystemUnderTest, system_at_url
from inference_recommender.measurement import limit_of
from inference_recommender.payloads import content_type_of, payload_archive
from inference_recommender.progress import Progress
from inference_recommender.run_folder import PAYLOADS, RunFolder
from workloads import POISSON, ROOT, ArrivalProcess, ModelArtifact, WorkloadFolder, load_artifact, load_workload
from workloads.folder import with_settings

MODEL, TRAFFIC = "spellcheck", "quick"
LIMIT_FACTOR = 20
CVS = (0.5, 1.0, 2.0, 4.0)
RECORDED = ArrivalProcess(process="markov-modulated", dispersion=20.0, burst_s=2.0)
RECORDED_PER_S, RECORDED_S = 400.0, 300.0
PEAK = "objective.peak_invocations_per_minute=2000000"
"""For proofs: in a large fleet, the load of an instance does not depend on the rounded count."""
BURSTY = ArrivalProcess(process="gamma", cv=CVS[-1])
INSIDE = 0.9
COLUMNS = ("users", "completed", "latencies_ms")
LINE = "{:24}{:>10}  {:>17}{:>10}  {:>17}{:>8}"


def main() -> int:
    options = harness.options(__doc__, rounds=(2, "of all processes"), seconds=(300, "of a search, at most"))
    folder, artifact = load_workload(MODEL), load_artifact(ROOT, MODEL, "cpu")
    inside: list[bool] = []
    with tempfile.TemporaryDirectory() as name, _triton(artifact) as triton:
        system = system_at_url(triton.url, artifact.default_model)
        settled = _users(folder, system, RunFolder(Path(name) / "first"))
        limit_ms = round(LIMIT_FACTOR * float(np.median(settled.latencies_ms[settled.users == 1])))
        print(f"P99 <= {limit_ms} ms, {LIMIT_FACTOR} times the median latency of one user", flush=True)
        folder = with_settings(folder, [f"objective.model_latency_ms={limit_ms}", PEAK])
        print(LINE.format("arrivals", "estimate", "95 %", "search", "95 %", "inside"), flush=True)
        for round_number in range(options.rounds):
            inside += _searches(folder, system, Path(name) / str(round_number), float(options.seconds))
        last = RunFolder(Path(name) / "last")
        right = list(_proofs(folder, system, last, _users(folder, system, last)))
    judged = [
        Goal(cell="estimate and search inside each other's interval", figure=float(np.mean(inside)), limit=INSIDE),
        Goal(cell="right verdicts of proofs", figure=float(np.mean(right)), limit=1.0),
    ]
    return goals.finish("arrivals", (), {"cases": len(inside), "proofs": len(right)}, judged)


@contextmanager
def _triton(artifact: ModelArtifact) -> Iterator[PlainTriton]:
    """Starts the server, leaves the last core to the load, and holds every core awake without taking its time."""
    *of_server, of_load = sorted(os.sched_getaffinity(0))
    loop = ["chrt", "--idle", "0", "sh", "-c", "while :; do :; done"]
    loops = [subprocess.Popen(["taskset", "--cpu-list", str(core), *loop]) for core in (*of_server, of_load)]
    repository = ROOT / "build" / MODEL / "cpu" / "repository"
    try:
        os.sched_setaffinity(0, of_server)
        with http_triton(repository, artifact.default_model, dict(artifact.environment)) as triton:
            os.sched_setaffinity(0, [of_load])
            yield triton
    finally:
        for each in loops:
            each.kill()
            each.wait()


def _users(folder: WorkloadFolder, system: SystemUnderTest, run_folder: RunFolder) -> SettledPeriods:
    run_folder.keep_workload(folder.workload)
    run_folder.keep_bytes(PAYLOADS, payload_archive(folder.payloads(), folder.workload.latency_objective))
    test = LoadTest(system=system, traffic=folder.traffic(TRAFFIC), request_timeout_s=60.0)
    (measured,) = test.measure(run_folder, Progress())
    assert measured.series is not None
    settled = settled_periods(measured.series, measured.series.latency_ms)
    assert settled is not None
    return settled


def _searches(folder: WorkloadFolder, system: SystemUnderTest, path: Path, longest_s: float) -> Iterator[bool]:
    limit = limit_of(folder.workload.latency_objective)
    for label, process in _processes(path):
        run_folder = RunFolder(path / label)
        before = _users(folder, system, run_folder)
        arrivals = fitted(process, before.estimate(limit).invocations_per_minute or 600.0)
        start = before.estimate(limit, arrivals).invocations_per_minute or 600.0
        probe = _probe(folder, system, run_folder, "search", process)
        searched = Search(send=probe, limit=limit, start=start, longest_s=longest_s, arrivals=arrivals).run()
        after = _users(folder, system, RunFolder(path / f"{label}, after"))
        both: Any = {name: np.concatenate([getattr(each, name) for each in (before, after)]) for name in COLUMNS}
        estimate = replace(before, **both).estimate(limit, arrivals)
        has_none = searched.invocations_per_minute is None
        is_known = searched.interval is not None and searched.interval[0] > 0
        inside = is_known and _within(estimate, searched) and (has_none or _within(searched, estimate))
        print(LINE.format(label, *_shown(estimate), *_shown(searched), "yes" if inside else "no"), flush=True)
        yield inside


def _proofs(
    folder: WorkloadFolder, system: SystemUnderTest, run_folder: RunFolder, settled: SettledPeriods
) -> Iterator[bool]:
    workload = folder.workload
    limit = limit_of(workload.latency_objective)
    for name, sized_for, right in (("Poisson arrivals", POISSON, "missed"), ("bursty arrivals", BURSTY, "kept")):
        capacity = settled.estimate(limit, sized_for).sizing_rate
        assert capacity is not None
        longest_s = default_duration_s(BURSTY, capacity)
        print(f"Proof of the fleet for {name}: at most {longest_s / 60:.0f} min.", file=sys.stderr)
        proving = Proving(
            recommendation=recommendation(workload, capacity),
            system=system,
            probe=_probe(folder, system, run_folder, f"proof, {name}", BURSTY),
            longest_s=longest_s,
            sizing=workload.sizing,
            arrivals=BURSTY,
        )
        proving.tests.pop(proving.loss.name, None)  # the peak decides
        proving.run()
        proof = proving.proof(machine="", measured_at="", run="")
        print(f"fleet for {name}, {proof.invocations_per_minute:,.0f} an instance: {proof.verdict}", flush=True)
        yield proof.verdict == right


def _probe(
    folder: WorkloadFolder, system: SystemUnderTest, run_folder: RunFolder, name: str, arrivals: ArrivalProcess
) -> GeneratorProbe:
    path, kind = run_folder.path, content_type_of(folder.workload)
    return GeneratorProbe(path / PAYLOADS, path / name, system, content_type=kind, arrivals=arrivals)


def _processes(folder: Path) -> Iterator[tuple[str, ArrivalProcess]]:
    for cv in CVS:
        yield f"gamma, CV {cv:g}", ArrivalProcess(process="gamma", cv=cv)
    file = folder / "recorded.csv"
    stamps_s = arrival_times(RECORDED, RECORDED_PER_S, RECORDED_S, np.random.default_rng(0))
    file.write_text("".join(f"{each:.6f}\n" for each in stamps_s))
    yield "replay", ArrivalProcess(process="replay", file=str(file))


def _within(one: Capacity, other: Capacity) -> bool:
    """Returns whether a capacity is inside the interval of another one."""
    low, high = other.interval or (0.0, 0.0)
    return one.invocations_per_minute is not None and low <= one.invocations_per_minute <= high


def _shown(found: Capacity) -> tuple[str, str]:
    rate, (low, high) = found.invocations_per_minute, found.interval or (0.0, 0.0)
    return "-" if rate is None else f"{rate:,.0f}", f"{low:,.0f} to {high:,.0f}"


if __name__ == "__main__":
    sys.exit(main())
