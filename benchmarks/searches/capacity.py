"""The capacity search: how often it is right, and for how many requests and probes, beside doubling and bisection.

  python benchmarks/searches/capacity.py [--seeds 50]       simulated services of known capacity, in virtual time
  python benchmarks/searches/capacity.py --triton RUNS      `capacity spellcheck` against a real Triton on this machine

Doubling and bisection is how AIPerf's and perf_analyzer's searches go, written here anew: 1,000 requests a probe, the
rate doubled until a probe's percentile is over the limit, then the bracket halved until it is within 5 %; the result
is its lower end. It starts on a warm service, at the same rate as ours; ours warms it up, and those probes and requests
count.

A search is right if its rate is within 5 % of the true capacity, which long runs at fixed rates tell: ours the one at
which the percentile most likely is the limit. Its interval should hold the truth for 95 % of seeds. Ours ends when that
is ±5 %, as `capacity` does, or already at ±9 % (quick): the most likely rate is nearer than that.

The services differ in what makes requests late: waiting behind batches (batches), rare stalls of a cold one (stalls),
two workers that slow each other down (workers), chance alone (mm1), and a machine that is slower at times (noisy).
Every service's quick search is judged by the same goals.

--triton starts the server once and searches RUNS times, each as a command of its own, five minutes at most: whether it
was resolved to 5 %, probes, seconds, and the load average meanwhile. A core of a shared machine is faster at some times
than at others, and a capacity with it: `core` is what a fixed calculation took on it before and after the search,
milliseconds, while the server was idle. The last line is one JSON document; exit code 1 where a goal is not met.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, Python finds only this folder
from benchmarks.plain_triton import plain_triton
from benchmarks.searches.simulated_service import (
    BATCHING,
    COLD,
    MM1,
    NOISY,
    Service,
    SimulatedService,
    mm1_capacity_per_minute,
    true_capacity_per_minute,
)
from benchmarks.side_by_side import machine
from inference_recommender.capacity.limit import Limit
from inference_recommender.capacity.search import MOST_PROBES, RESOLUTION, Reason, Search
from inference_recommender.measure.search import SEARCH
from workloads import ROOT, load_artifact

START = 600.0
PER_PROBE, CLOSE = 1000, 1.05
RIGHT, QUICK = 0.05, 0.09
FIRST_SEED = 1000
WARM_UP_S = 60.0
PORT = 18_031
TWO = Service(workers=2, max_batch=4, fixed_ms=3.0, per_unit_ms=1.0, contention=0.3, jitter=0.2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    service: Service
    limit_ms: float

    @property
    def truth(self) -> float:
        if self.service is MM1:
            return mm1_capacity_per_minute(MM1, 99, self.limit_ms)
        return true_capacity_per_minute(self.service, 99, self.limit_ms)


CASES = {
    "batches": Case(service=BATCHING, limit_ms=50),
    "stalls": Case(service=COLD, limit_ms=80),
    "workers": Case(service=TWO, limit_ms=40),
    "mm1": Case(service=MM1, limit_ms=50),
    "noisy": Case(service=NOISY, limit_ms=50),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
    """The result of one search; rates are multiples of the true capacity."""

    rate: float | None
    interval: tuple[float, float] | None
    probes: int
    requests: int
    seconds: float


def ours(case: Case, truth: float, seed: int, resolution: float = RESOLUTION) -> Searched:
    simulated = SimulatedService(case.service, seed)
    limit = Limit(percentile=99, latency_ms=case.limit_ms)
    search = Search(send=simulated.probe, limit=limit, start=START, resolution=resolution)
    found = search.run()
    rate = search.rate_at_limit
    return Searched(
        rate=None if rate is None else rate.rate / truth,
        interval=None if found.interval is None else (found.interval[0] / truth, found.interval[1] / truth),
        probes=search.count,
        requests=simulated.requests,
        seconds=search.spent_s,
    )


def bisection(case: Case, truth: float, seed: int) -> Searched:
    simulated = SimulatedService(case.service, seed)
    simulated.open_loop(START, WARM_UP_S)
    before, began = simulated.requests, simulated.now_s
    probes = 0

    def keeps(rate: float) -> bool:
        nonlocal probes
        probes += 1
        latencies = simulated.open_loop(rate, PER_PROBE / rate * 60).latencies_ms
        return float(np.percentile(latencies, 99)) <= case.limit_ms

    low, high = 0.0, START
    while keeps(high):
        low, high = high, 2 * high
    while low * CLOSE < high:
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return Searched(
        rate=low / truth,
        interval=None,
        probes=probes,
        requests=simulated.requests - before,
        seconds=simulated.now_s - began,
    )


SEARCHES = {"ours": ours, "quick": partial(ours, resolution=QUICK), "doubling and bisection": bisection}


def summary(searches: Sequence[Searched]) -> dict[str, Any]:
    rates = [search.rate for search in searches if search.rate is not None]
    intervals = [search.interval for search in searches if search.interval is not None]
    return {
        "within_5_percent": sum(abs(rate - 1) <= RIGHT for rate in rates) / len(searches),
        "interval_holds_truth": sum(low <= 1 <= high for low, high in intervals) / len(searches) if intervals else None,
        "rate_over_truth": statistics.median(rates),
        "probes": statistics.median(search.probes for search in searches),
        "most_probes": max(search.probes for search in searches),
        "requests": statistics.median(search.requests for search in searches),
        "seconds": statistics.median(search.seconds for search in searches),
    }


def goals(case: dict[str, Any]) -> dict[str, bool]:
    ours, peer = case["quick"], case["doubling and bisection"]
    return {
        "within 5 % of the truth for 95 % of seeds": ours["within_5_percent"] >= 0.95,
        "8 probes at most in the median": ours["probes"] <= 8,
        "half the requests of doubling and bisection": ours["requests"] <= peer["requests"] / 2,
    }


def simulated(seeds: int) -> dict[str, Any]:
    print(f"{'':32}{'±5 %':>6}{'holds':>7}{'rate':>7}{'probes':>8}{'requests':>10}{'s':>7}")
    cases: dict[str, Any] = {}
    for name, case in CASES.items():
        truth = case.truth
        of: dict[str, Any] = {"true_invocations_per_minute": truth, "limit_ms": case.limit_ms}
        for title, search in SEARCHES.items():
            of[title] = s = summary([search(case, truth, FIRST_SEED + seed) for seed in range(seeds)])
            holds = "-" if s["interval_holds_truth"] is None else f"{s['interval_holds_truth']:.2f}"
            print(
                f"{name:9}{title:23}{s['within_5_percent']:6.2f}{holds:>7}{s['rate_over_truth']:7.3f}{s['probes']:8g}"
                f"{s['requests']:10,.0f}{s['seconds']:7.0f}"
            )
        of["goals"] = goals(of)
        cases[name] = of
    for name, of in cases.items():
        for goal, met in of["goals"].items():
            print(f"{'met    ' if met else 'NOT met'} {name}: {goal}")
    return {"seeds": seeds, "services": cases}


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One search of a real Triton."""

    exit_code: int
    invocations_per_minute: float | None
    interval: tuple[float | None, float | None] | None
    half_width: float | None
    probes: int
    requests: int
    seconds: float
    """Seconds of the whole command."""
    load_average: float
    """The last minute's, when it ended: search, server and whatever else ran."""
    calculation_ms: tuple[float, float]
    """Milliseconds of a fixed calculation on one core, before and after."""
    reason: str

    @property
    def is_resolved(self) -> bool:
        return self.reason == Reason.RESOLVED.value and self.probes <= MOST_PROBES and self.seconds <= 300


def real(runs: int) -> dict[str, Any]:
    artifact = load_artifact(ROOT, "spellcheck", "cpu")
    repository = ROOT / "build" / "spellcheck" / "cpu" / "repository"
    flags = ["--allow-grpc=false", "--allow-metrics=false", "--http-address=127.0.0.1", f"--http-port={PORT}"]
    with plain_triton(
        repository,
        default_model=artifact.default_model,
        environment=artifact.environment,
        flags=flags,
        url=f"http://127.0.0.1:{PORT}",
        ready=f"/v2/models/{artifact.default_model}/ready",
    ) as server:
        done = list(_runs(runs, server.url))
    intervals = [run.interval for run in done if run.interval and None not in run.interval]
    overlap = [low <= top and bottom <= high for (low, high), (bottom, top) in combinations(intervals, 2)]
    met = sum(run.is_resolved for run in done) >= 0.9 * runs
    print(f"{'met    ' if met else 'NOT met'} to 5 %, in 12 probes and 300 s at most, in nine of ten runs")
    return {
        "runs": [asdict(run) for run in done],
        "resolved": sum(run.is_resolved for run in done),
        "pairs_of_intervals_that_overlap": sum(overlap) / len(overlap) if overlap else None,
        "goals": {"resolved in nine of ten runs": met, "intervals overlap": all(overlap)},
    }


def _runs(runs: int, url: str) -> Iterator[Run]:
    print(f"{'run':>3}{'a minute':>10}{'interval':>20}{'± %':>6}{'probes':>8}{'s':>6}{'load':>6}{'core':>16}")
    for number in range(runs):
        run = _run(url)
        ends = " to ".join("?" if end is None else f"{end:,.0f}" for end in run.interval or (None, None))
        rate = "none" if run.invocations_per_minute is None else f"{run.invocations_per_minute:,.0f}"
        width = "?" if run.half_width is None else f"{run.half_width:.1%}"
        core = " and ".join(f"{each:.1f}" for each in run.calculation_ms)
        effort = f"{run.probes:8}{run.seconds:6.0f}{run.load_average:6.1f}{core:>16}"
        print(f"{number + 1:3}{rate:>10}{ends:>20}{width:>6}{effort}", flush=True)
        yield run


def _run(url: str) -> Run:
    with tempfile.TemporaryDirectory(prefix="search_") as folder:
        before = _calculation_ms()
        began = time.monotonic()
        command = ["run", "spellcheck", "--url", url, "--runs", folder, "--json"]
        ended = subprocess.run(
            [sys.executable, "-m", "inference_recommender", *command],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        seconds = time.monotonic() - began
        kept = list(Path(folder).glob("*/measurements.json"))
        if not kept:
            raise SystemExit(f"The search failed with exit code {ended.returncode}:\n{ended.stderr[-2000:]}")
        (measured,) = json.loads(kept[0].read_text("utf-8"))
        found = measured["open_loop"]
        probes = [file for file in (kept[0].parent / SEARCH).glob("probe-*") if file.is_dir()]
    rate, interval = found["invocations_per_minute"], found["interval"]
    known = interval is not None and None not in interval
    return Run(
        exit_code=ended.returncode,
        invocations_per_minute=rate,
        interval=None if interval is None else (interval[0], interval[1]),
        half_width=(interval[1] - interval[0]) / (interval[1] + interval[0]) if known else None,
        probes=len(probes),
        requests=sum(sum(probe["requests"]) for probe in found["probes"]),
        seconds=seconds,
        load_average=os.getloadavg()[0],
        calculation_ms=(before, _calculation_ms()),
        reason=found["reason"],
    )


def _calculation_ms() -> float:
    """Returns the median of some hundred times of the same calculation."""
    times = []
    for _ in range(101):
        began = time.perf_counter()
        sum(number * number for number in range(100_000))
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50, metavar="N", help="of each simulated service; default: 50")
    parser.add_argument("--triton", type=int, metavar="RUNS", help="search a real Triton so many times instead")
    options = parser.parse_args()
    found = simulated(options.seeds) if options.triton is None else real(options.triton)
    reached = [found["goals"]] if "goals" in found else [case["goals"] for case in found["services"].values()]
    print(json.dumps({**machine(["numpy", "scipy"]), **found}))
    return 0 if all(met for goals in reached for met in goals.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
