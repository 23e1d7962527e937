"""The capacity search beside doubling and bisection: how often it is right, and for how many requests and probes.

  python benchmarks/searches/capacity.py [--seeds 50]

Simulated services of known capacity in virtual time. Doubling and bisection is the search of AIPerf and perf_analyzer:
1,000 requests a probe, the rate doubled until the percentile is over the limit, then the bracket halved to 5 %. It
starts on a warm service; ours warms it up, and those requests count.

A search is right within 5 % of the true capacity. `ours` ends at ±5 %, `quick` at ±9 %. The services differ in what
makes requests late: batches, rare stalls, two workers that slow each other down, chance, and a machine that drifts.
"""

import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, Python finds only this folder
from benchmarks import goals, harness
from benchmarks.goals import Goal
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
from inference_recommender.capacity.search import RESOLUTION, Search
from inference_recommender.capacity.statistics import Limit

START = 600.0
PER_PROBE, CLOSE = 1000, 1.05
RIGHT, QUICK = 0.05, 0.09
FIRST_SEED = 1000
WARM_UP_S = 60.0
TWO = Service(workers=2, max_batch=4, fixed_ms=3.0, per_unit_ms=1.0, contention=0.3, jitter=0.2)


CASES = {
    "batches": (BATCHING, 50.0),
    "stalls": (COLD, 80.0),
    "workers": (TWO, 40.0),
    "mm1": (MM1, 50.0),
    "noisy": (NOISY, 50.0),
}
"""Each service with its limit in milliseconds."""


class Searched(NamedTuple):
    """The result of one search; rates are multiples of the true capacity."""

    rate: float | None
    interval: tuple[float, float] | None
    probes: int
    requests: int
    seconds: float


def ours(service: Service, limit_ms: float, truth: float, seed: int, resolution: float = RESOLUTION) -> Searched:
    simulated = SimulatedService(service, seed)
    limit = Limit(percentile=99, latency_ms=limit_ms)
    search = Search(send=simulated.probe, limit=limit, start=START, resolution=resolution)
    result = search.run()
    rate = None if search.rate_at_limit is None else search.rate_at_limit.rate / truth
    interval = result.interval and (result.interval[0] / truth, result.interval[1] / truth)
    return Searched(rate, interval, search.count, simulated.requests, search.spent_s)


def bisection(service: Service, limit_ms: float, truth: float, seed: int) -> Searched:
    simulated = SimulatedService(service, seed)
    simulated.open_loop(START, WARM_UP_S)
    before, began = simulated.requests, simulated.now_s
    probes = 0

    def keeps(rate: float) -> bool:
        nonlocal probes
        probes += 1
        latencies = simulated.open_loop(rate, PER_PROBE / rate * 60).latencies_ms
        return float(np.percentile(latencies, 99)) <= limit_ms

    low, high = 0.0, START
    while keeps(high):
        low, high = high, 2 * high
    while low * CLOSE < high:
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return Searched(low / truth, None, probes, simulated.requests - before, simulated.now_s - began)


SEARCHES: dict[str, Callable[[Service, float, float, int], Searched]] = {
    "ours": ours,
    "quick": partial(ours, resolution=QUICK),
    "doubling and bisection": bisection,
}


def summary(searches: Sequence[Searched]) -> dict[str, Any]:
    rates = [search.rate for search in searches if search.rate is not None]
    intervals = [search.interval for search in searches if search.interval is not None]
    return {
        "within_5_percent": sum(abs(rate - 1) <= RIGHT for rate in rates) / len(searches),
        "interval_holds_truth": sum(low <= 1 <= high for low, high in intervals) / len(searches) if intervals else None,
        "rate_over_truth": statistics.median(rates),
        "probes": statistics.median(search.probes for search in searches),
        "requests": statistics.median(search.requests for search in searches),
        "seconds": statistics.median(search.seconds for search in searches),
    }


def judge(name: str, case: dict[str, Any]) -> list[Goal]:
    ours, peer = case["quick"], case["doubling and bisection"]
    share, probes, requests = ours["within_5_percent"], ours["probes"], ours["requests"] / peer["requests"]
    return [
        Goal(cell=f"{name}: share of seeds within 5 % of the truth", figure=share, limit=0.95),
        Goal(cell=f"{name}: probes in the median", figure=probes, limit=8, at_most=True),
        Goal(cell=f"{name}: requests over doubling and bisection", figure=requests, limit=0.5, at_most=True),
    ]


def main() -> int:
    seeds = harness.options(__doc__, seeds=(50, "of each service")).seeds
    print(f"{'':32}{'±5 %':>6}{'holds':>7}{'rate':>7}{'probes':>8}{'requests':>10}{'s':>7}")
    cases = {name: _case(name, seeds) for name in CASES}
    reached = [goal for name, case in cases.items() for goal in judge(name, case)]
    return goals.finish("searches/capacity", ["numpy", "scipy"], {"seeds": seeds, "services": cases}, reached)


def _case(name: str, seeds: int) -> dict[str, Any]:
    service, limit_ms = CASES[name]
    true_capacity = mm1_capacity_per_minute if service is MM1 else true_capacity_per_minute
    truth = true_capacity(service, 99, limit_ms)
    of: dict[str, Any] = {"true_invocations_per_minute": truth, "limit_ms": limit_ms}
    for title, search in SEARCHES.items():
        of[title] = s = summary([search(service, limit_ms, truth, FIRST_SEED + seed) for seed in range(seeds)])
        holds = "-" if s["interval_holds_truth"] is None else f"{s['interval_holds_truth']:.2f}"
        print(
            f"{name:9}{title:23}{s['within_5_percent']:6.2f}{holds:>7}{s['rate_over_truth']:7.3f}{s['probes']:8g}"
            f"{s['requests']:10,.0f}{s['seconds']:7.0f}",
            flush=True,
        )
    return of


if __name__ == "__main__":
    sys.exit(main())
