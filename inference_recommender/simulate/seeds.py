"""Simulates many seeds of a traffic in parallel processes; the outcomes are those of one process, in order of seeds."""

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Protocol

from inference_recommender.simulate.curve import LatencyCurve
from inference_recommender.simulate.policy import Outcome, Policy, Timing, Traffic
from inference_recommender.simulate.simulation import simulate

STEPS_AT_ONCE = 60_000
"""Steps of a piece of work: a few tenths of a second."""
FEWEST_STEPS = 600_000
"""Fewer are simulated here: a process takes about half a second to start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """All that a simulation depends on beside its policy and its seed."""

    traffic: Traffic
    curve: LatencyCurve
    timing: Timing

    def run(self, policy: Policy, seed: int, *, timeline: bool = False) -> Outcome:
        return simulate(self.traffic.load(seed), policy, self.curve, self.timing, seed, timeline=timeline)


class Workers(Protocol):
    """Simulates policies with seeds."""

    def run(self, policy: Policy, seeds: Sequence[int], done: Callable[[int], None]) -> tuple[Outcome, ...]:
        """Returns an outcome per seed, in their order; `done` is told of every few seeds that are simulated."""


class Here:
    """Simulates in this process."""

    def __init__(self, case: Case, *, timeline: bool = False) -> None:
        """With `timeline`, each outcome has its course, which is some hundred bytes a step."""
        self._case, self._timeline = case, timeline

    def run(self, policy: Policy, seeds: Sequence[int], done: Callable[[int], None]) -> tuple[Outcome, ...]:
        outcomes = []
        for seed in seeds:
            outcomes.append(self._case.run(policy, seed, timeline=self._timeline))
            done(1)
        return tuple(outcomes)


class Processes:
    """Simulates in a process per core. Use as a context manager: leaving it ends the processes."""

    def __init__(self, case: Case, count: int) -> None:
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

    def run(self, policy: Policy, seeds: Sequence[int], done: Callable[[int], None]) -> tuple[Outcome, ...]:
        each = min(seeds_at_once(self._case, policy), -(-len(seeds) // self._count))
        pieces = [seeds[first : first + each] for first in range(0, len(seeds), each)]
        work = [self._pool.submit(_simulated, self._case, policy, piece) for piece in pieces]
        outcomes: list[Outcome] = []
        for piece in work:
            found = piece.result()
            outcomes += found
            done(len(found))
        return tuple(outcomes)


def steps_of(case: Case, policy: Policy) -> int:
    """Returns the steps of one seed."""
    return int(case.traffic.load(0).minutes * 60 / policy.step_s)


def seeds_at_once(case: Case, policy: Policy) -> int:
    return max(STEPS_AT_ONCE // steps_of(case, policy), 1)


def workers(case: Case, policy: Policy, seeds: int) -> "Here | Processes":
    """Returns processes where there is enough to do for them."""
    cores = len(os.sched_getaffinity(0))
    if cores < 2 or steps_of(case, policy) * seeds < FEWEST_STEPS:
        return Here(case)
    return Processes(case, cores)


def _simulated(case: Case, policy: Policy, seeds: Sequence[int]) -> list[Outcome]:
    return [case.run(policy, seed) for seed in seeds]
