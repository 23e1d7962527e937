"""Simulates policies with many seeds, and compares the outcomes with a tolerance."""

import math
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Self

import numpy as np

from inference_recommender.simulate.curve import LatencyCurve
from inference_recommender.simulate.policy import Policy, Timing, TrafficSource
from inference_recommender.simulate.simulation import FleetSimulation, SeedOutcome, simulate

MONTH_MINUTES = 30 * 24 * 60
MINUTES_AT_ONCE = 60_000
"""Minutes of a piece of work: a few tenths of a second."""
FEWEST_MINUTES = 600_000
"""Fewer minutes are simulated in this process: another one takes half a second to start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """The tolerated minutes over the objective, and the share of seeds that must be within them."""

    minutes: float = 5.0
    """In a month. A shorter trace may have all of them."""
    confidence: float = 0.99

    def allowed(self, minutes: float) -> float:
        """Returns the tolerated minutes of a trace of that length."""
        return self.minutes * max(1.0, minutes / MONTH_MINUTES)

    def seeds_that_may_exceed(self, seeds: int) -> int:
        return int(seeds * (1 - self.confidence) + 1e-9)

    def too_few_seeds(self, seeds: int) -> str | None:
        """Returns a sentence if the seeds cannot show the share: a share of 99 % needs 100 seeds."""
        needed = math.ceil(1 / (1 - self.confidence) - 1e-9)
        if seeds >= needed:
            return None
        return f"{seeds_text(seeds)}: no share of seeds can be given; use --seeds {needed}."


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyResult:
    """A policy's outcomes, one per seed."""

    policy: Policy
    outcomes: tuple[SeedOutcome, ...]
    tolerance: Tolerance
    allowed_minutes: float
    """The tolerated minutes over the objective in the whole trace."""

    def exceeding(self, share: float = 1.0) -> int:
        """Returns the number of seeds with more than this share of the tolerated minutes."""
        return sum(each.minutes_over_objective > share * self.allowed_minutes for each in self.outcomes)

    @property
    def is_within_tolerance(self) -> bool:
        return self.exceeding() <= self.tolerance.seeds_that_may_exceed(len(self.outcomes))

    @property
    def worst(self) -> SeedOutcome:
        """The seed with the most minutes over the objective, then the most late requests."""
        return max(self.outcomes, key=lambda each: (each.minutes_over_objective, each.late_share))

    def mean(self, figure: str) -> float:
        """Returns the mean over seeds of a field of their outcomes."""
        return float(np.mean([getattr(each, figure) for each in self.outcomes]))

    @property
    def instance_hours(self) -> float:
        return self.mean("instance_hours")

    @property
    def most_instances(self) -> int:
        return max(each.most_instances for each in self.outcomes)

    @property
    def minutes_over(self) -> float:
        return self.mean("minutes_over_objective")

    @property
    def minutes_over_at_confidence(self) -> float:
        """Minutes over the objective that the tolerance's share of seeds does not exceed."""
        ordered = sorted(each.minutes_over_objective for each in self.outcomes)
        return ordered[-1 - self.tolerance.seeds_that_may_exceed(len(ordered))]

    @property
    def late_share(self) -> float:
        requests = sum(each.requests for each in self.outcomes)
        return sum(each.late for each in self.outcomes) / requests if requests else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulationCase:
    """Everything that a simulation depends on besides its policy and its seed."""

    traffic: TrafficSource
    curve: LatencyCurve
    timing: Timing
    tolerance: Tolerance
    dispersion: float = 1.0
    """Index of dispersion of the requests in a minute."""

    @property
    def minutes(self) -> int:
        """The length of the trace."""
        return len(self.traffic.load(0).rates)

    def run(self, policy: Policy, seed: int) -> FleetSimulation:
        """Returns a finished simulation."""
        return simulate(self.traffic.load(seed), policy, self.curve, self.timing, seed, self.dispersion)

    def result(self, policy: Policy, outcomes: tuple[SeedOutcome, ...]) -> PolicyResult:
        allowed = self.tolerance.allowed(self.minutes)
        return PolicyResult(policy=policy, outcomes=outcomes, tolerance=self.tolerance, allowed_minutes=allowed)


class Workers:
    """Simulates policies with many seeds, in `processes` processes. Use it as a context manager, which ends them."""

    def __init__(self, case: SimulationCase, processes: int = 1) -> None:
        self._case, self._processes, self._pool = case, processes, None
        if processes > 1:
            # Ctrl-C reaches every process of the terminal: this one ends the others.
            ignores = (signal.SIGINT, signal.SIG_IGN)
            self._pool = ProcessPoolExecutor(
                processes, mp_context=get_context("spawn"), initializer=signal.signal, initargs=ignores
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def run(self, policy: Policy, seeds: Sequence[int], done: Callable[[int], None]) -> PolicyResult:
        """Returns an outcome per seed, in their order. Calls `done` with the number of seeds just simulated."""
        at_once = max(MINUTES_AT_ONCE // self._case.minutes, 1)
        each = min(at_once, -(-len(seeds) // self._processes))
        pieces = [seeds[first : first + each] for first in range(0, len(seeds), each)]
        cases, policies = [self._case] * len(pieces), [policy] * len(pieces)
        outcomes: list[SeedOutcome] = []
        for piece in (self._pool.map if self._pool else map)(_simulate_seeds, cases, policies, pieces):
            outcomes += piece
            done(len(piece))
        return self._case.result(policy, tuple(outcomes))


def workers(case: SimulationCase, seeds: int) -> Workers:
    """Returns workers with a process per core if the work is worth starting them."""
    return Workers(case, len(os.sched_getaffinity(0)) if case.minutes * seeds >= FEWEST_MINUTES else 1)


def _simulate_seeds(case: SimulationCase, policy: Policy, seeds: Sequence[int]) -> list[SeedOutcome]:
    return [case.run(policy, seed).outcome(seed) for seed in seeds]


def seeds_text(count: int) -> str:
    return f"{count:,} seed{'s' * (count != 1)}"
