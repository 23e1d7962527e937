"""The probe of a capacity search: the load generator as a child process, with arrivals of a fixed mean rate.

Every record is kept. Latency is the client's, from intended send. Requests that a stall of this machine delayed are
left out, and a probe with more than `SPOILED` of its time in stalls is repeated.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from inference_recommender.capacity.probe import ProbeRecords
from inference_recommender.capacity.search import Bottleneck, SendProbe
from inference_recommender.kserve import JSON_TYPE
from inference_recommender.load_generator.load_plan import Arrivals, LoadPlan, NamedEndpoint, StoppingConditions
from inference_recommender.load_generator.process import Outcome, generate
from inference_recommender.load_generator.self_watch import LAGGED, STALLED
from inference_recommender.load_generator.time_stamps import arrivals_of
from inference_recommender.measure.system import SystemUnderTest
from inference_recommender.payloads import content_type_of
from inference_recommender.run_folder import PAYLOADS, RunFolder
from inference_recommender.triton_statistics import TritonStatistics
from workloads import POISSON, ROOT, ArrivalProcess, NoVerdict, Unavailable, Workload
from workloads.files import from_here

MOST_CONNECTIONS = 256
SPOILED = 0.1
"""Share of a probe's time in stalls above which the probe is repeated."""
MOST_ATTEMPTS = 3
AROUND = 2.0
"""A stall delays the requests due within this many times its length before its start and after its end."""
Tell = Callable[[str], None]


def endpoint_of(system: SystemUnderTest) -> NamedEndpoint | None:
    """Returns the generator's form of an endpoint; None for a system with a URL."""
    return None if system.url else NamedEndpoint(name=system.name, region=system.region)


class GeneratorProbe:
    """Sends arrivals of a process to a system. Each probe has its own folder below `folder` and its own seed."""

    def __init__(
        self,
        payloads: Path,
        folder: Path,
        system: SystemUnderTest,
        *,
        content_type: str = JSON_TYPE,
        arrivals: ArrivalProcess = POISSON,
        tell: Tell = lambda text: None,
        seed: int = 0,
    ) -> None:
        self._system, self._content_type, self._arrivals = system, content_type, arrivals
        self._payloads = payloads
        self._folder = folder
        self._tell = tell
        self._seed = seed
        self._count = 0
        self._statistics = TritonStatistics(system.url)

    def __call__(self, rate_per_minute: float, duration_s: float) -> ProbeRecords:
        """Returns the attempt with the least time in stalls. Raises `Bottleneck` if the generator was the limit in each
        attempt, `Unavailable` if the service does not answer.
        """
        self._count += 1
        self._tell(f"probe {self._count}: {rate_per_minute:,.0f} invocations/min for {duration_s:.0f} s")
        attempts: list[tuple[float, ProbeRecords]] = []
        for attempt in range(1, MOST_ATTEMPTS + 1):
            folder = self._folder / f"probe-{self._count:03}{'' if attempt == 1 else f'-{attempt}'}"
            try:
                stalled, found = self._attempt(rate_per_minute, duration_s, folder)
            except Bottleneck as bottleneck:
                if attempt == MOST_ATTEMPTS and not attempts:
                    raise
                why = str(bottleneck)
            else:
                if stalled <= SPOILED:
                    return found
                attempts.append((stalled, found))
                why = f"this machine stalled for {stalled:.0%} of it"
            if attempt < MOST_ATTEMPTS:
                self._tell(f"probe {self._count} is repeated: {why}")
        return min(attempts, key=lambda one: one[0])[1]

    def _attempt(self, rate_per_minute: float, duration_s: float, folder: Path) -> tuple[float, ProbeRecords]:
        """Returns the share of the time in stalls, and the requests outside them."""
        plan = LoadPlan(
            url=self._system.url,
            endpoint=endpoint_of(self._system),
            payloads=self._payloads.resolve(),
            content_type=self._content_type,
            arrivals=Arrivals(
                invocations_per_minute=rate_per_minute,
                duration_in_seconds=duration_s,
                process=self._arrivals,
                seed=self._seed + self._count,
                connections=MOST_CONNECTIONS,
            ),
            stopping_conditions=StoppingConditions(flat_invocations="Continue"),
        )
        before = self._statistics.read()
        outcome = generate(plan, folder)
        self._refuse(outcome)
        stalled, found = seen(outcome.records, duration_s)
        return stalled, replace(
            found, server=self._statistics.since(before, int(np.isfinite(found.latencies_ms).sum()))
        )

    def _refuse(self, outcome: Outcome) -> None:
        """Errors and a lack of samples are left to the search, which counts them."""
        if outcome.reason.startswith((LAGGED, STALLED)):
            raise Bottleneck(outcome.reason)
        if outcome.summary is None or outcome.exit_code not in (0, NoVerdict.exit_code):
            reason = outcome.reason.rstrip(".")
            raise Unavailable(f"{self._system.name}: {reason}. Measurements: {from_here(self._folder)}.")


def probe_of(
    system: SystemUnderTest, run_folder: RunFolder, folder: Path, tell: Tell = lambda text: None, seed: int = 0
) -> SendProbe:
    """Returns a probe of a system with the payloads and the arrivals of a run. It keeps every request in `folder`."""
    return GeneratorProbe(
        run_folder.path / PAYLOADS,
        folder,
        system,
        content_type=content_type_of(run_folder.workload()),
        arrivals=arrivals_to_send(run_folder.workload()),
        tell=tell,
        seed=seed,
    )


def arrivals_to_send(workload: Workload) -> ArrivalProcess:
    """Returns the objective's arrival process, whose recording is in the workload's folder."""
    return arrivals_of(workload.latency_objective, ROOT / "workloads" / workload.name)


def seen(records: Path, duration_s: float) -> tuple[float, ProbeRecords]:
    """Reads a generator's records. A request that failed or had no answer counts as infinitely late.

    Returns the share of the time in stalls of this machine, and the requests that no stall delayed.
    """
    with np.load(records, allow_pickle=False) as kept:
        finished = np.concatenate([kept["finished_s"], np.full(len(kept["unfinished_intended_s"]), np.inf)])
        intended = np.concatenate([kept["intended_s"], kept["unfinished_intended_s"]])
        failed = np.concatenate([kept["status"] != 200, np.ones(len(kept["unfinished_intended_s"]), dtype=np.bool_)])
        stalls = kept["stalls_s"]
    latencies = np.where(failed, np.inf, (finished - intended) * 1000)
    delayed = np.zeros(len(intended), dtype=np.bool_)
    for start, end in stalls:
        around = AROUND * (end - start)
        delayed |= (finished > start) & (intended > start - around) & (intended < end + around)
    order = np.argsort(intended, kind="stable")
    order = order[~delayed[order]]
    found = ProbeRecords(duration_s=duration_s, intended_s=intended[order], latencies_ms=latencies[order])
    return float(np.diff(stalls, axis=1).sum()) / duration_s, found
