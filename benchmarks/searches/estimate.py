"""The open-loop estimate beside the true capacity of simulated services (simulated_service.py).

    python benchmarks/searches/estimate.py [--seeds 100]

A minute of closed-loop users as in `[traffic.quick]` of spellcheck gives the estimate for P99 ≤ 50 ms in virtual time.
`ratio` is the estimate over the truth: median, and range of 95 % of the seeds. `holds` is the share of 95 % intervals
that contain the truth. In the rows "with other work" every second point is half as fast and reported as stalled. Exits
with 1 if fewer than 90 % of the intervals of a service contain the truth.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, Python finds only this folder
from benchmarks import goals, harness
from benchmarks.goals import Goal
from benchmarks.searches.simulated_service import SERVICES, Service, SimulatedService, true_capacity_per_minute
from inference_recommender.capacity.flow_equivalent import settled_periods
from inference_recommender.capacity.probe import Capacity
from inference_recommender.capacity.statistics import Limit
from inference_recommender.capacity.time_series import Series

LIMIT = Limit(percentile=99.0, latency_ms=50.0)
TRAFFIC_S = 60
JOINS_S = (0.0, 20.0, *(20 + 2.5 * number for number in range(1, 16)))
HOLDS = 0.9
OTHER_WORK, STALLED_S = 2.0, 0.5


def main() -> int:
    seeds = range(harness.options(__doc__, seeds=(100, "of each service")).seeds)
    print(f"{'service':<26} {'truth/min':>10} {'ratio':>6} {'95 % of seeds':>14} {'holds':>6}")
    judged = []
    for name, service in SERVICES.items():
        truth = true_capacity_per_minute(service, LIMIT.percentile, 50.0)
        for words, disturbed in (("", False), (", with other work", True)):
            found = [estimate(service, seed, disturbed=disturbed) for seed in seeds]
            ratios = np.array([one.invocations_per_minute for one in found]) / truth
            intervals = [one.interval or (0.0, 0.0) for one in found]
            holds = float(np.mean([low <= truth <= high for low, high in intervals]))
            judged.append(Goal(cell=f"{name}{words}: share of intervals with the truth", figure=holds, limit=HOLDS))
            spread = "{:.2f} to {:.2f}".format(*np.percentile(ratios, [2.5, 97.5]))
            print(f"{name + words:<26} {truth:10,.0f} {np.median(ratios):6.2f} {spread:>14} {holds:6.2f}", flush=True)
    return goals.finish("searches/estimate", (), {"seeds": len(seeds)}, judged)


def estimate(service: Service, seed: int, *, disturbed: bool) -> Capacity:
    measured = series(service, seed, disturbed=disturbed)
    settled = settled_periods(measured, measured.latency_ms)
    assert settled is not None
    return settled.estimate(LIMIT)


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
