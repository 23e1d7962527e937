"""The result of a policy over all seeds, and its tolerance. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from inference_recommender.capacity.statistics import Floats
from inference_recommender.simulate.policy import Policy, SeedOutcome
from inference_recommender.simulate.seeds import SimulationCase

MONTH_MINUTES = 30 * 24 * 60


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
    """A policy's outcomes."""

    policy: Policy
    outcomes: tuple[SeedOutcome, ...]
    minutes: float
    """Length of the trace."""
    price_per_hour_usd: float | None
    tolerance: Tolerance

    @property
    def exceeding(self) -> int:
        """Seeds with more than the tolerated minutes over the objective."""
        allowed = self.tolerance.allowed(self.minutes)
        return sum(each.minutes_over_objective > allowed for each in self.outcomes)

    @property
    def is_within_tolerance(self) -> bool:
        return self.exceeding <= self.tolerance.seeds_that_may_exceed(len(self.outcomes))

    @property
    def worst(self) -> SeedOutcome:
        """The seed with the most minutes over the objective, then the most late requests."""
        return max(self.outcomes, key=lambda each: (each.minutes_over_objective, each.late_share))

    @property
    def instance_hours(self) -> float:
        return mean([each.instance_hours for each in self.outcomes])

    @property
    def lower_bound_hours(self) -> float:
        return mean([each.lower_bound_hours for each in self.outcomes])

    @property
    def minutes_over(self) -> float:
        return mean([each.minutes_over_objective for each in self.outcomes])

    @property
    def minutes_over_at_confidence(self) -> float:
        """Minutes over the objective that the tolerance's share of seeds does not exceed."""
        ordered = sorted(each.minutes_over_objective for each in self.outcomes)
        return ordered[-1 - self.tolerance.seeds_that_may_exceed(len(ordered))]

    @property
    def late_share(self) -> float:
        requests = sum(each.requests for each in self.outcomes)
        return sum(each.late for each in self.outcomes) / requests if requests else 0.0

    def usd(self, hours: float) -> float | None:
        return None if self.price_per_hour_usd is None else hours * self.price_per_hour_usd

    def course(self, case: SimulationCase, seed: int) -> Mapping[str, Floats]:
        """Returns the course of a seed, one entry per step. Simulates again if the outcome has none."""
        known = next((each.timeline for each in self.outcomes if each.seed == seed), {})
        return known or case.run(self.policy, seed, timeline=True).timeline


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def seeds_text(count: int) -> str:
    return f"{count:,} seed{'s' * (count != 1)}"
