"""`tune` against brute force, which is a whole capacity search of each configuration: what either finds, and its price.

    python benchmarks/searches/tune.py [--seeds 10] [--brute-force-seeds 2]
    python benchmarks/searches/tune.py --triton spellcheck --target cpu

On a simulated service (`simulated_service`), 160 configurations in virtual time: two precisions, one or two threads and
model instances, five batch sizes, four queue delays. Either's choice is judged by its true capacity, which long runs
tell. On a real Triton, 15 configurations of a built target: there is no truth to be had, and the highest of 15 measured
capacities is mostly one that chance or a fast hour has flattered, so two choices that differ are searched anew, in
turns, and judged by their medians. The last line is one JSON document.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, Python finds only this folder
from benchmarks.searches.simulated_service import NOISY, Service, SimulatedService, true_capacity_per_minute
from inference_recommender.capacity.limit import Limit
from inference_recommender.capacity.rate import Capacity
from inference_recommender.capacity.search import Search
from inference_recommender.measure.probe import GeneratorProbe
from inference_recommender.measure.system import cores, machine_description, system_at_url
from inference_recommender.payloads import payload_archive
from inference_recommender.tune.folder import TuneFolder, TunePlan
from inference_recommender.tune.probe_counts import ProbeCounts
from inference_recommender.tune.race import Race
from inference_recommender.tune.space import Configuration, Machine, space
from inference_recommender.tune.triton import SHORTEST_PROBE_S, Built, TritonProbe, TunedTriton
from workloads import ROOT, Serving, artifact_file, load_artifact, load_workload
from workloads.serving import Tune

LIMIT = Limit(percentile=99.0, latency_ms=100.0)
WORK_MS = {"cpu": 2.5, "cpu-int8": 1.8}
"""Milliseconds per unit of work with one thread, by target."""
THREADS, INSTANCES, BATCHES, DELAYS_MS = (1, 2), (1, 2), (2, 4, 8, 16, 32), (0.0, 1.0, 3.0, 8.0)
SPEED_UP = 1.5
"""Two threads are so many times as fast as one …"""
CONTENTION = 0.15
"""… and model instances slow each other down by this share for each thread."""
WARM_UP_S = 0.5
TRUE_REQUESTS, ATTEMPTS = 4_000_000, 4
"""Requests of the long runs that tell a true capacity, times the number of the attempt."""
ON_TRITON = Tune(
    model_instances=(1, 2),
    max_batch_sizes=(1, 4, 16),
    preferred_batch_sizes=((),),
    max_queue_delays_ms=(0.0, 2.0),
)
LONGEST_S = 90.0
"""Seconds of brute force's probes of one configuration on a real Triton."""
LONGEST_RACE_S = 600.0
TURNS = 3
"""Times that each of two choices which differ is searched anew on a real Triton."""


def configurations() -> list[Configuration]:
    """Returns the 160 configurations of the simulated service."""
    return [
        Configuration(
            target=target,
            threads=threads,
            serving=Serving(max_batch_size=batch, max_queue_delay_ms=delay, model_instances=instances),
        )
        for target in WORK_MS
        for threads in THREADS
        for instances in INSTANCES
        for batch in BATCHES
        for delay in DELAYS_MS
    ]


def service(configuration: Configuration) -> Service:
    """Returns the service that a configuration makes; Triton's warm-up requests have warmed it."""
    threads, serving = configuration.threads or 1, configuration.serving
    return replace(
        NOISY,
        workers=serving.model_instances,
        max_batch=serving.max_batch_size,
        queue_delay_ms=serving.max_queue_delay_ms,
        fixed_ms=4.0,
        per_unit_ms=WORK_MS[configuration.target] / (SPEED_UP if threads == 2 else 1.0),
        contention=CONTENTION * threads,
        cold_factor=1.0,
    )


def race_simulated(configured: Sequence[Configuration], seed: int) -> Race:
    """Runs `tune` on services that are made anew whenever another configuration is loaded."""
    running: tuple[Configuration | None, SimulatedService] = (None, SimulatedService(NOISY, 0))
    started = 0

    def probe(configuration: Configuration, rate: float, duration_s: float) -> ProbeCounts:
        nonlocal running, started
        warm_up = 0
        if running[0] != configuration:
            started += 1
            running = configuration, SimulatedService(service(configuration), 1_000_000 * seed + started)
            warm_up = len(running[1].probe(rate, WARM_UP_S).intended_s)
        seen = ProbeCounts.of(rate, running[1].probe(rate, duration_s), LIMIT)
        return seen.model_copy(update={"sent": seen.sent + warm_up})

    race = Race(configurations=configured, send=probe, limit=LIMIT)
    race.run()
    return race


def brute_force_simulated(configured: Sequence[Configuration], seed: int) -> tuple[Configuration, int]:
    """Returns the configuration whose capacity was found highest, and the requests of all searches."""
    requests, found = 0, []
    for number, configuration in enumerate(configured):
        server = SimulatedService(service(configuration), 1_000_000 * seed + 500_000 + number)
        found.append(Search(send=server.probe, limit=LIMIT).run())
        requests += server.requests
    return configured[_highest(found)], requests


def _highest(found: Sequence[Capacity]) -> int:
    return max(range(len(found)), key=lambda place: found[place].invocations_per_minute or 0.0)


@cache
def true_capacity(seen: Service) -> float:
    """Returns the capacity by long runs. The machine drifts, so a parabola through theirs may miss the limit: then
    longer ones of another seed tell.
    """
    assert LIMIT.latency_ms is not None
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return true_capacity_per_minute(
                seen, LIMIT.percentile, LIMIT.latency_ms, requests=attempt * TRUE_REQUESTS, seed=100 * attempt
            )
        except ValueError:
            continue
    raise SystemExit(f"The long runs of {seen} tell no capacity.")


def on_simulation(seeds: int, brute_force_seeds: int) -> dict[str, Any]:
    """Returns, by seed, what either chose and what it cost; brute force's last run counts for seeds without one."""
    configured, rows = configurations(), []
    for seed in range(1, seeds + 1):
        race = race_simulated(configured, seed)
        assert race.leader is not None
        if seed <= max(brute_force_seeds, 1):
            best, requests = brute_force_simulated(configured, seed)
        row = {
            "seed": seed,
            "tune": race.leader.configuration.label,
            "tune_true": round(true_capacity(service(race.leader.configuration))),
            "tune_requests": race.requests,
            "brute_force": best.label,
            "brute_force_true": round(true_capacity(service(best))),
            "brute_force_requests": requests,
        }
        print(_in_words(row), flush=True)
        rows.append(row)
    return _document(rows, {"configurations": len(configured), "on": "simulated service"})


def _in_words(row: dict[str, Any]) -> str:
    return (
        f"seed {row['seed']}: tune {row['tune']} ({row['tune_true']:,}/min) with {row['tune_requests']:,} requests; "
        f"brute force {row['brute_force']} ({row['brute_force_true']:,}/min) with {row['brute_force_requests']:,}"
    )


def _document(rows: Sequence[dict[str, Any]], about: dict[str, Any]) -> dict[str, Any]:
    of_best = [row["tune_true"] / row["brute_force_true"] for row in rows]
    shares = [row["tune_requests"] / row["brute_force_requests"] for row in rows]
    return {
        **about,
        "machine": machine_description(),
        "load_average": [round(each, 1) for each in os.getloadavg()],
        "capacity_of_brute_forces": {"lowest": round(min(of_best), 3), "median": round(median(of_best), 3)},
        "share_of_its_requests": {"highest": round(max(shares), 3), "median": round(median(shares), 3)},
        "runs": list(rows),
    }


def on_triton(name: str, target: str) -> dict[str, Any]:
    """Returns what either chose on a real Triton, and what it cost; capacities are those that brute force measured."""
    source, artifact = load_workload(name), load_artifact(ROOT, name, target)
    workload, objective = source.workload, source.workload.latency_objective
    limit = Limit(percentile=objective.percentile_rank, latency_ms=objective.model_latency_ms)
    tune = ON_TRITON.model_copy(update={"targets": (target,)})
    configured = space(workload, tune, Machine(cores=cores())).configurations
    built = {
        target: Built(
            repository=artifact_file(ROOT, name, target).with_name("repository"), environment=artifact.environment
        )
    }
    with tempfile.TemporaryDirectory(prefix="search_tune_") as scratch:
        folder = TuneFolder(Path(scratch))
        plan = TunePlan(
            workload=name, configurations=configured, left_out=(), archives={}, instance_type=None, longest_s=3600.0
        )
        folder.begin(plan, workload, payload_archive(source.payloads()))
        with TunedTriton(name, built, folder.path, print) as triton:
            began = time.monotonic()
            race = Race(
                configurations=configured,
                send=TritonProbe(triton, folder, limit),
                limit=limit,
                shortest_s=SHORTEST_PROBE_S,
                longest_s=LONGEST_RACE_S,
            )
            print(race.run().value, f"{time.monotonic() - began:.0f} s, {race.requests:,} requests", flush=True)
            assert race.leader is not None
            chosen = configured.index(race.leader.configuration)
            print(f"tune: {configured[chosen].label}", flush=True)
            began, searches = time.monotonic(), Searches(triton, configured, folder, limit)
            rates = [searches.capacity(place) for place in range(len(configured))]
            best, requests = rates.index(max(rates)), searches.requests
            print(f"brute force: {time.monotonic() - began:.0f} s, {requests:,} requests", flush=True)
            again = TURNS if chosen != best else 0
            turns = [(searches.capacity(chosen), searches.capacity(best)) for _ in range(again)]
    judged = turns or [(rates[chosen], rates[best])]
    row = {
        "seed": 1,
        "tune": configured[chosen].label,
        "tune_true": round(median(of_tune for of_tune, _ in judged)),
        "tune_requests": race.requests,
        "brute_force": configured[best].label,
        "brute_force_true": round(median(of_best for _, of_best in judged)),
        "brute_force_requests": requests,
        "capacities": {each.label: round(rate) for each, rate in zip(configured, rates, strict=True)},
        "turns": turns,
    }
    print(_in_words(row))
    return _document([row], {"configurations": len(configured), "on": f"Triton, {name} for {target}"})


class Searches:
    """Capacity searches of configurations on one Triton, and the requests of all of them."""

    def __init__(
        self, triton: TunedTriton, configured: Sequence[Configuration], folder: TuneFolder, limit: Limit
    ) -> None:
        self._triton, self._configured, self._folder, self._limit = triton, configured, folder, limit
        self._count = 0
        self.requests = 0

    def capacity(self, place: int) -> float:
        """Loads a configuration and returns its invocations a minute within the limit, 0 where none were found."""
        configuration = self._configured[place]
        self._triton.load(configuration)
        self._count += 1
        records = self._folder.path / "brute" / f"{self._count}"
        probe = GeneratorProbe(
            self._folder.payloads, records, system_at_url(self._triton.url, ""), seed=1000 * self._count
        )

        def counting(rate: float, duration_s: float) -> Any:
            seen = probe(rate, duration_s)
            self.requests += len(seen.intended_s)
            return seen

        found = Search(send=counting, limit=self._limit, longest_s=LONGEST_S).run()
        print(f"{configuration.label}: {found.invocations_per_minute} ({found.reason})", flush=True)
        return found.invocations_per_minute or 0.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="of the simulated service; default: 10")
    parser.add_argument(
        "--brute-force-seeds",
        type=int,
        default=2,
        metavar="N",
        help="seeds for which brute force runs, a minute or two each; default: 2",
    )
    parser.add_argument("--triton", metavar="WORKLOAD", help="on a real Triton instead, with this workload")
    parser.add_argument("--target", default="cpu", help="that was built for it; default: cpu")
    options = parser.parse_args()
    printed = (
        on_triton(options.triton, options.target)
        if options.triton
        else on_simulation(options.seeds, options.brute_force_seeds)
    )
    print(json.dumps(printed))
