"""Simulates many seeds in parallel processes. The outcomes are those of one process, in the order of the seeds."""

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Protocol

from inference_recommender.simulate.curve import LatencyCurve
from inference_recommender.simulate.policy import Policy, SeedOutcome, Timing, TrafficSource
from inference_recommender.simulate.simulation import simulate

STEPS_AT_ONCE = 60_000
"""Steps of a piece of work: a few tenths of a second."""
FEWEST_STEPS = 600_000
"""Fewer steps are simulated in this process: another one takes half a second to start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulationCase:
    """Everything that a simulation depends on besides its policy and its seed."""

    traffic: TrafficSource
    curve: LatencyCurve
    timing: Timing

    def run(self, policy: Policy, seed: int, *, timeline: bool = False) -> SeedOutcome:
        return simulate(self.traffic.load(seed), policy, self.curve, self.timing, seed, timeline=timeline)

    def steps(self, policy: Policy) -> int:
        """Returns the steps of one seed."""
        return int(self.traffic.load(0).minutes * 60 / policy.step_s)


class Workers(Protocol):
    """Simulates policies with seeds."""

    def run(self, policy: Policy, seeds: Sequence[int], done: Callable[[int], None]) -> tuple[SeedOutcome, ...]:
        """Returns an outcome per seed, in their order. Calls `done` with the number of seeds just simulated."""


class InProcess:
    """Simulates in this process. With `timeline`, each outcome has its course: some hundred bytes per step."""

    def __init__(self, case: SimulationCase, *, timeline: bool = False) -> None:
        self._case, self._timeline = case, timeline

    def run(self, policy: Policy, seeds: Sequence[int], done: Callable[[int], None]) -> tuple[SeedOutcome, ...]:
        outcomes = []
        for seed in seeds:
            outcomes.append(self._case.run(policy, seed, timeline=self._timeline))
            done(1)
        return tuple(outcomes)


class Processes:
    """Simulates in a process per core. Use it as a context manager, which ends the processes."""

    def __init__(self, case: SimulationCase, count: int) -> None:
        self._case, self._count = case, count
        # Ctrl-C reaches every process of the terminal: this one ends the others.
        ignores = (signal.SIGINT, signal.SIG_IGN)
        self._pool = ProcessPoolExecutor(
            count, mp_context=get_context("spawn"), initializer=signal.signal, initargs=ignores
        )

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def run(self, policy: Policy, seeds: Sequence[int], done: Callable[[int], None]) -> tuple[SeedOutcome, ...]:
        at_once = max(STEPS_AT_ONCE // self._case.steps(policy), 1)
        each = min(at_once, -(-len(seeds) // self._count))
        pieces = [seeds[first : first + each] for first in range(0, len(seeds), each)]
        work = [self._pool.submit(_simulate_seeds, self._case, policy, piece) for piece in pieces]
        outcomes: list[SeedOutcome] = []
        for piece in work:
            outcomes += piece.result()
            done(len(piece.result()))
        return tuple(outcomes)


def workers(case: SimulationCase, policy: Policy, seeds: int) -> InProcess | Processes:
    """Returns processes if the work is worth starting them."""
    cores = len(os.sched_getaffinity(0))
    if cores < 2 or case.steps(policy) * seeds < FEWEST_STEPS:
        return InProcess(case)
    return Processes(case, cores)


def _simulate_seeds(case: SimulationCase, policy: Policy, seeds: Sequence[int]) -> list[SeedOutcome]:
    return [case.run(policy, seed) for seed in seeds]
