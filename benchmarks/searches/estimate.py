"""The open-loop estimate, the search and the test of a rate beside the true capacity of simulated services.

    python benchmarks/searches/estimate.py [--seeds 200]

A minute of closed-loop users as in `[traffic.quick]` of spellcheck gives the estimate for P99 ≤ 50 ms in virtual time.
`ratio` is the estimate over the truth: median, and range of 95 % of the seeds. `holds` is the share of 95 % intervals
that contain the truth. In the row "with other work" every second point is half as fast and reported as stalled.
`search` is the same share for open-loop searches of 15 minutes, of those with an interval. `kept` is the share of tests
at `OVER` times the truth that call the limit kept. Exits with 1 if fewer than 90 % of the estimate's intervals or 93 %
of the search's contain the truth, or if more than 5 % are kept.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, Python finds only this folder
from benchmarks import goals, harness
from benchmarks.goals import Goal
from benchmarks.searches.simulated_service import MM1, SERVICES, Service, SimulatedService, true_capacity_per_minute
from inference_recommender.capacity.flow_equivalent import settled_periods
from inference_recommender.capacity.probe import Capacity
from inference_recommender.capacity.search import Search
from inference_recommender.capacity.statistics import Limit
from inference_recommender.capacity.time_series import Series
from inference_recommender.measure.sequential import SequentialTest, looks_s
from workloads import POISSON, ArrivalProcess

LIMIT = Limit(percentile=99.0, latency_ms=50.0)
TRAFFIC_S = 60
JOINS_S = (0.0, 20.0, *(20 + 2.5 * number for number in range(1, 16)))
HOLDS, SEARCH_HOLDS, KEPT = 0.9, 0.93, 0.05
LINE = "{:60} {:>10} {:>6} {:>14} {:>6} {:>7} {:>5}"
OTHER_WORK, STALLED_S = 2.0, 0.5
LONGEST_S, OVER = 900.0, 1.05
DETERMINISTIC = Service(max_batch=1, fixed_ms=4.0, per_unit_ms=0.0)
CASES = [
    *((name, service, POISSON) for name, service in SERVICES.items()),
    *(
        (name, service, process)
        for name, service in (("M/M/1", MM1), ("D/1", DETERMINISTIC), ("batching", SERVICES["batching"]))
        for process in (
            ArrivalProcess(process="gamma", cv=0.5),
            ArrivalProcess(process="gamma", cv=2.0),
            ArrivalProcess(process="weibull", cv=2.0),
            ArrivalProcess(process="markov-modulated", dispersion=10.0, burst_s=1.0),
            ArrivalProcess(process="on-off", burst_s=0.5, pause_s=0.5),
        )
    ),
    ("batching", SERVICES["batching"], ArrivalProcess(process="gamma", cv=4.0)),
]


def main() -> int:
    seeds = range(harness.options(__doc__, seeds=(200, "of each service")).seeds)
    print(LINE.format("service", "truth/min", "ratio", "95 % of seeds", "holds", "search", "kept"))
    judged = []
    for name, service, arrivals in CASES:
        truth = true_capacity_per_minute(service, LIMIT.percentile, 50.0, arrivals=arrivals)
        title = name if arrivals == POISSON else f"{name}, {arrivals.text}"
        searched = [interval for seed in seeds if (interval := search(service, arrivals, truth, seed).interval)]
        found_by_search = _share(searched, truth)
        kept = float(np.mean([_keeps(service, arrivals, OVER * truth, seed) for seed in seeds]))
        judged.append(
            Goal(cell=f"{title}: share of searches with the truth", figure=found_by_search, limit=SEARCH_HOLDS)
        )
        judged.append(Goal(cell=f"{title}: share kept above the truth", figure=kept, limit=KEPT, at_most=True))
        for words, disturbed in (("", False), (", with other work", True))[: 2 if arrivals == POISSON else 1]:
            found = [estimate(service, seed, arrivals, disturbed=disturbed) for seed in seeds]
            ratios = np.array([one.invocations_per_minute for one in found]) / truth
            holds = _share([one.interval or (0.0, 0.0) for one in found], truth)
            judged.append(Goal(cell=f"{title}{words}: share of estimates with the truth", figure=holds, limit=HOLDS))
            spread = "{:.2f} to {:.2f}".format(*np.percentile(ratios, [2.5, 97.5]))
            ratio, *others = (f"{each:.2f}" for each in (np.median(ratios), holds, found_by_search, kept))
            print(LINE.format(title + words, f"{truth:,.0f}", ratio, spread, *others), flush=True)
    return goals.finish("searches/estimate", (), {"seeds": len(seeds)}, judged)


def _share(intervals: list[tuple[float, float]], truth: float) -> float:
    return float(np.mean([low <= truth <= high for low, high in intervals]))


def search(service: Service, arrivals: ArrivalProcess, truth: float, seed: int) -> Capacity:
    probe = SimulatedService(service, seed, arrivals).probe
    return Search(send=probe, limit=LIMIT, start=truth / 3, longest_s=LONGEST_S, arrivals=arrivals).run()


def _keeps(service: Service, arrivals: ArrivalProcess, rate: float, seed: int) -> bool:
    probe = SimulatedService(service, seed, arrivals).probe
    looks = looks_s(rate, LIMIT.percentile, LONGEST_S)
    test = SequentialTest(probe=probe, rate_per_minute=rate, limit=LIMIT, looks_s=looks, arrivals=arrivals)
    return test.run() == "kept"


def estimate(service: Service, seed: int, arrivals: ArrivalProcess, *, disturbed: bool) -> Capacity:
    measured = series(service, seed, disturbed=disturbed)
    settled = settled_periods(measured, measured.latency_ms)
    assert settled is not None
    return settled.estimate(LIMIT, arrivals)


def series(service: Service, seed: int, *, disturbed: bool) -> Series:
    """Returns the time series of the users, in points of a second."""
    run = SimulatedService(service, seed).closed_loop(JOINS_S, float(TRAFFIC_S))
    second = np.minimum(run.finished_s.astype(np.intp), TRAFFIC_S - 1)
    latencies = [run.latencies_ms[second == number] for number in range(TRAFFIC_S)]
    slow = [OTHER_WORK if disturbed and number % 2 else 1.0 for number in range(TRAFFIC_S)]
    return Series(
        period_s=1,
        seconds=tuple(float(number) for number in range(TRAFFIC_S)),
        users=tuple(float(np.searchsorted(JOINS_S, number, side="right")) for number in range(TRAFFIC_S)),
        invocations=tuple(len(each) / factor for each, factor in zip(latencies, slow, strict=True)),
        errors=(0.0,) * TRAFFIC_S,
        latency_ms={
            f"p{rank}": tuple(float(np.percentile(each, rank)) * f for each, f in zip(latencies, slow, strict=True))
            for rank in (50, 90, 95, 99)
        },
        stalled_s=tuple(STALLED_S * (each > 1) for each in slow) if disturbed else (),
    )


if __name__ == "__main__":
    sys.exit(main())
