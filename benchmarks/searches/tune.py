"""`tune` beside brute force, a whole capacity search of each configuration: the choice of each and its cost.

    python benchmarks/searches/tune.py [--seeds 10]

160 configurations of a simulated service in virtual time. A choice is judged by its true capacity from long runs. Exits
with 1 if a choice of `tune` has less than 98 % of brute force's capacity or costs more than 15 % of its requests.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, Python finds only this folder
from benchmarks import goals, harness
from benchmarks.goals import Goal
from benchmarks.searches.simulated_service import NOISY, Service, SimulatedService, true_capacity_per_minute
from inference_recommender.capacity.search import Search
from inference_recommender.capacity.statistics import Limit
from inference_recommender.tune.probe_counts import ProbeCounts, counted
from inference_recommender.tune.race import Race
from inference_recommender.tune.space import ServingConfiguration
from workloads import Serving

LIMIT = Limit(percentile=99.0, latency_ms=100.0)
WORK_MS = {"cpu": 2.5, "cpu-int8": 1.8}
"""Milliseconds per unit of work with one thread, by target."""
THREADS, INSTANCES, BATCHES, DELAYS_MS = (1, 2), (1, 2), (2, 4, 8, 16, 32), (0.0, 1.0, 3.0, 8.0)
SPEED_UP, CONTENTION = 1.5, 0.15
"""Speed of two threads over one, and the share by which model instances slow each other down for each thread."""
WARM_UP_S = 0.5
BRUTE_FORCE_SEEDS = 2
TRUE_REQUESTS, ATTEMPTS = 4_000_000, 4
"""Requests of the long runs that tell a true capacity, times the number of the attempt."""


def configurations() -> list[ServingConfiguration]:
    """Returns the 160 configurations of the simulated service."""
    return [
        ServingConfiguration(
            target=target,
            threads=threads,
            serving=Serving(max_batch_size=batch, max_queue_delay_ms=delay, model_instances=instances),
        )
        for target, threads, instances, batch, delay in product(WORK_MS, THREADS, INSTANCES, BATCHES, DELAYS_MS)
    ]


def service(configuration: ServingConfiguration) -> Service:
    """Returns the service that a configuration makes; Triton's warm-up requests have warmed it."""
    threads, serving = configuration.threads or 1, configuration.serving
    return replace(
        NOISY,
        workers=serving.copies,
        max_batch=serving.max_batch_size,
        queue_delay_ms=serving.max_queue_delay_ms,
        fixed_ms=4.0,
        per_unit_ms=WORK_MS[configuration.target] / (SPEED_UP if threads == 2 else 1.0),
        contention=CONTENTION * threads,
        cold_factor=1.0,
    )


def race_simulated(configured: Sequence[ServingConfiguration], seed: int) -> Race:
    """Runs `tune` on services that are made anew whenever another configuration is loaded."""
    running: tuple[ServingConfiguration | None, SimulatedService] = (None, SimulatedService(NOISY, 0))
    started = 0

    def probe(configuration: ServingConfiguration, rate: float, duration_s: float) -> ProbeCounts:
        nonlocal running, started
        warm_up = 0
        if running[0] != configuration:
            started += 1
            running = configuration, SimulatedService(service(configuration), 1_000_000 * seed + started)
            warm_up = len(running[1].probe(rate, WARM_UP_S).intended_s)
        seen = counted(rate, running[1].probe(rate, duration_s), LIMIT)
        return seen.model_copy(update={"sent": seen.sent + warm_up})

    race = Race(configurations=configured, send=probe, limit=LIMIT)
    race.run()
    return race


def brute_force_simulated(configured: Sequence[ServingConfiguration], seed: int) -> tuple[ServingConfiguration, int]:
    """Returns the configuration whose capacity was found highest, and the requests of all searches."""
    requests, found = 0, []
    for number, configuration in enumerate(configured):
        server = SimulatedService(service(configuration), 1_000_000 * seed + 500_000 + number)
        found.append(Search(send=server.probe, limit=LIMIT).run())
        requests += server.requests
    highest = max(range(len(found)), key=lambda place: found[place].invocations_per_minute or 0.0)
    return configured[highest], requests


@cache
def true_capacity(seen: Service) -> float:
    """Returns the capacity by long runs, repeated with longer ones if their parabola misses the limit."""
    for attempt in range(1, ATTEMPTS + 1):
        requests, seed = attempt * TRUE_REQUESTS, 100 * attempt
        with suppress(ValueError):
            return true_capacity_per_minute(seen, LIMIT.percentile, LIMIT.bound_ms, requests=requests, seed=seed)
    raise SystemExit(f"The long runs of {seen} tell no capacity.")


def main() -> int:
    options = harness.options(__doc__, seeds=(10, "of `tune`"))
    configured, rows = configurations(), []
    for seed in range(1, options.seeds + 1):
        race = race_simulated(configured, seed)
        assert race.leader is not None
        if seed <= BRUTE_FORCE_SEEDS:  # its last choice also counts for later seeds
            best, requests = brute_force_simulated(configured, seed)
        row: dict[str, Any] = {
            "seed": seed,
            "tune": race.leader.configuration.label,
            "tune_true": round(true_capacity(service(race.leader.configuration))),
            "tune_requests": race.requests,
            "brute_force": best.label,
            "brute_force_true": round(true_capacity(service(best))),
            "brute_force_requests": requests,
        }
        print(*(f"{key} {value}" for key, value in row.items()), sep="  ", flush=True)
        rows.append(row)
    lowest = min(row["tune_true"] / row["brute_force_true"] for row in rows)
    highest = max(row["tune_requests"] / row["brute_force_requests"] for row in rows)
    judged = [
        Goal(cell="tune's capacity over brute force's", figure=lowest, limit=0.98),
        Goal(cell="tune's requests over brute force's", figure=highest, limit=0.15, at_most=True),
    ]
    return goals.finish("searches/tune", (), {"configurations": len(configured), "runs": rows}, judged)


if __name__ == "__main__":
    sys.exit(main())
