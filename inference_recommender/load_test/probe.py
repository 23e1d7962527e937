"""The probe of a capacity search: the load generator as a child process, with arrivals at a fixed rate.

Only here does a search meet a process and files; every record is kept. Latency is the client's, from intended send.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from inference_recommender.capacity.search import Bottleneck, Seen
from inference_recommender.load_generator.plan import Arrivals, LoadPlan, SageMakerEndpoint, StoppingConditions
from inference_recommender.load_generator.process import Outcome, generate
from inference_recommender.triton_statistics import TritonStatistics
from workloads import Unavailable
from workloads.files import from_here

LAGGED = "generator lagged"
INVALID = 4
MOST_CONNECTIONS = 256


class GeneratorProbe:
    """Asks a URL or an endpoint; each probe has a folder below `folder` and a seed of its own, and is told before it
    begins.
    """

    def __init__(
        self,
        payloads: Path,
        folder: Path,
        *,
        url: str | None = None,
        endpoint: SageMakerEndpoint | None = None,
        served_at: str | None = None,
        tell: Callable[[str], None] = lambda text: None,
        seed: int = 0,
    ) -> None:
        """`served_at` is the address of an endpoint's own server, where that is known."""
        self._url = url
        self._endpoint = endpoint
        self._payloads = payloads
        self._folder = folder
        self._tell = tell
        self._seed = seed
        self._count = 0
        self._statistics = TritonStatistics(url or served_at)

    def __call__(self, rate_per_minute: float, duration_s: float) -> Seen:
        """Raises `Bottleneck` where the generator was in the way, `Unavailable` where the service is not there."""
        self._count += 1
        self._tell(f"probe {self._count}: {rate_per_minute:,.0f} invocations/min for {duration_s:.0f} s")
        plan = LoadPlan(
            url=self._url,
            endpoint=self._endpoint,
            payloads=self._payloads.resolve(),
            arrivals=Arrivals(
                invocations_per_minute=rate_per_minute,
                duration_in_seconds=duration_s,
                seed=self._seed + self._count,
                connections=MOST_CONNECTIONS,
            ),
            stopping_conditions=StoppingConditions(flat_invocations="Continue"),
        )
        before = self._statistics.read()
        outcome = generate(plan, self._folder / f"probe-{self._count:03}")
        self._refuse(outcome)
        found = seen(outcome.records, duration_s)
        return replace(found, server=self._statistics.since(before, int(np.isfinite(found.latencies_ms).sum())))

    def _refuse(self, outcome: Outcome) -> None:
        """Errors and a lack of samples are left to the search, which counts them."""
        if outcome.reason.startswith(LAGGED):
            raise Bottleneck(outcome.reason)
        if outcome.summary is None or outcome.exit_code not in (0, INVALID):
            why = outcome.reason.rstrip(".")
            asked = self._endpoint.name if self._endpoint else self._url
            raise Unavailable(f"{asked}: {why}. What was measured is kept in {from_here(self._folder)}.")


def seen(records: Path, duration_s: float) -> Seen:
    """Reads a generator's records: a request that failed or had no answer counts as infinitely late."""
    with np.load(records, allow_pickle=False) as kept:
        latencies = (kept["finished_s"] - kept["intended_s"]) * 1000
        latencies[kept["status"] != 200] = np.inf
        intended = np.concatenate([kept["intended_s"], kept["unfinished_intended_s"]])
    latencies = np.concatenate([latencies, np.full(len(intended) - len(latencies), np.inf)])
    order = np.argsort(intended, kind="stable")
    return Seen(duration_s=duration_s, intended_s=intended[order], latencies_ms=latencies[order])
