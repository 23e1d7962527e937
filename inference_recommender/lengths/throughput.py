"""Drives a server with closed-loop users of one kind of payloads: what it completes with each number of them.

In: a `Server` and an archive of payloads. Out: `flow_equivalent.Records`, from which follows what open arrivals of the
same payloads would get. Users that wait for their answers keep the server's batches as full as their number allows, so
that what longer requests cost in a batch is measured, and not concluded from requests alone.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from inference_recommender.capacity.flow_equivalent import SHARES, Records
from inference_recommender.capacity.statistics import Bools, Floats
from inference_recommender.lengths.served import Server
from inference_recommender.load_generator.plan import LoadPlan, Phase, StoppingConditions, TrafficPattern
from inference_recommender.load_generator.process import generate
from workloads import Unavailable
from workloads.files import from_here

FULL = 2
"""So many times the rows that are computed at once: while one batch is computed, the next is whole."""
SETTLING, PERIODS = 0.25, 3
"""The share of a step that is left out at its beginning, and the parts that the rest is counted by."""
BATCHES, SHORTEST_STEP_S, LONGEST_STEP_S = 8, 1, 10
"""A step lasts as long as so many full batches, were each as slow as its rows one after another."""


def user_levels(at_once: int) -> tuple[int, ...]:
    """Returns the numbers of users, ascending; `at_once` is the rows that the server computes at once."""
    return tuple(2**power for power in range(math.ceil(math.log2(FULL * at_once)) + 1))


def step_seconds(at_once: int, alone_ms: float) -> int:
    """Returns the seconds of a step; `alone_ms` is the latency of the longest request by itself."""
    return min(max(math.ceil(BATCHES * at_once * alone_ms / 1000), SHORTEST_STEP_S), LONGEST_STEP_S)


def driven(server: Server, archive: Path, folder: Path, users: Sequence[int], step_s: int) -> Records:
    """Sends the payloads of `archive` by each number of users in turn; what was sent is kept in `folder`. Raises
    `Unavailable` where that was not possible, or nothing was answered.
    """
    phases = tuple(Phase(initial_number_of_users=each, duration_in_seconds=step_s) for each in users)
    plan = LoadPlan(
        url=server.url,
        endpoint=server.endpoint,
        payloads=archive.resolve(),
        traffic_pattern=TrafficPattern(traffic_type="PHASES", phases=phases),
        stopping_conditions=StoppingConditions(flat_invocations="Continue"),
    )
    outcome = generate(plan, folder)
    if outcome.summary is None:
        raise Unavailable(f"The load was not sent: {outcome.reason.rstrip('.')}. See {from_here(folder)}.")
    with np.load(outcome.records, allow_pickle=False) as kept:
        latencies_ms = (kept["finished_s"] - kept["sent_s"]) * 1000
        found = settled(kept["finished_s"], latencies_ms, kept["status"] == 200, users, step_s)
    if found is None:
        raise Unavailable(f"{server.name} answered no request of the load. See {from_here(folder)}.")
    return found


def settled(
    finished_s: Floats, latencies_ms: Floats, succeeded: Bools, users: Sequence[int], step_s: float
) -> Records | None:
    """Returns the parts of each step but its beginning, those with an answer; None where none has any."""
    period_s = step_s * (1 - SETTLING) / PERIODS
    of_users, completed, latencies = list[float](), list[float](), list[Floats]()
    for step, count in enumerate(users):
        for part in range(PERIODS):
            began = (step + SETTLING) * step_s + part * period_s
            those = succeeded & (finished_s >= began) & (finished_s < began + period_s)
            if number := int(those.sum()):
                of_users.append(count)
                completed.append(number)
                latencies.append(np.quantile(latencies_ms[those], SHARES))
    if not completed:
        return None
    return Records(
        users=np.array(of_users, np.float64),
        completed=np.array(completed, np.float64),
        latencies_ms=np.stack(latencies),
        period_s=period_s,
    )
