"""Searches the cheapest policy within a tolerance. Pure, except for the processes that simulate.

A descent starts from several policies and changes one value at a time while that improves the policy: fewer seeds over
the tolerance first, then fewer minutes over the objective, then fewer instance hours. All policies see the same seeds.

Policies within the tolerance, the cheapest first, are then simulated on the seeds that decide, and the ones that are
within it there on held-out seeds, each on its own. A seed fails there with more than half of the tolerated minutes. If
the recommended policy is within the tolerance, none may fail. Else failures are allowed that still show, with 95 %
confidence, a smaller share than the tolerance leaves. There are enough held-out seeds that none failing shows a third
of that share: (1 - p)^n = 0.05. Without a confirmed policy the nearest one is shown and not written.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, takewhile
from typing import Any

import numpy as np

from inference_recommender.capacity.statistics import Floats, binomial_at_most
from inference_recommender.simulate.policy import Policy
from inference_recommender.simulate.seeds import PolicyResult, SimulationCase, Tolerance, Workers
from workloads import Autoscaling, Recommendation, ScheduledMinimum, SimulatedOn

SEARCH_SEEDS = 24
FIRST_SEARCH_SEED, FIRST_HELD_OUT_SEED = 1_000_000, 2_000_000
HELD_OUT_MINUTES = 0.5
"""Share of the tolerated minutes that a held-out seed may have."""
HELD_OUT_SHARE, HELD_OUT_CONFIDENCE = 1 / 3, 0.95
HELD_OUT_AT_ONCE = 100
"""Held-out seeds between two checks for too many failures."""
DECIDED_APART = 1.02
"""Least ratio of the costs of two policies that are simulated on the seeds that decide, one after the other."""
USUAL_PERCENTILE = 95
"""An hour's usual load is this percentile of its minutes, the mean over days and seeds."""
RISES_BEFORE_MINUTES = 15
"""How long before its hour a higher minimum begins, because instances take minutes to start."""
HOURS = 24
DIMENSIONS: dict[str, tuple[Any, ...]] = {
    "target_share": (0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9),
    "margin": (None, -0.25, 0.0, 0.25, 0.5),
    "scale_out_cooldown_s": (0, 60, 300),
    "scale_in_cooldown_s": (300, 600, 1800),
    "spare": (0, 1, 2),
    "more_at_most": (1.0, 1.5, 2.0),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A point of the search."""

    target_share: float
    minimum: int
    scale_out_cooldown_s: int
    scale_in_cooldown_s: int
    margin: float | None = None
    """Headroom of scheduled minimums over the hour's usual load; None: there are no scheduled minimums."""
    spare: int = 0
    """Further instances of scheduled minimums."""
    more_at_most: float = 1.0
    """The maximum, as a multiple of the recommended one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicySearchResult:
    """The result of a search. `tried` has all policies, on the search's seeds."""

    chosen: PolicyResult
    """`today` if the recommended policy stays."""
    today: PolicyResult
    tried: tuple[PolicyResult, ...]
    held_out: range | None = None
    """The seeds that confirmed the choice; None: it is the recommended policy, or not confirmed."""
    failed: int = 0
    """How many of them failed."""

    @property
    def safe(self) -> bool:
        """Whether the choice is confirmed, or is the recommended policy within the tolerance."""
        return self.held_out is not None or self.today.is_within_tolerance

    def frontier(self, others: Sequence[PolicyResult]) -> tuple[PolicyResult, ...]:
        """Returns the policies that no other beats in both hours and minutes over the objective, the cheapest first,
        without those of `others`.
        """
        best: list[PolicyResult] = []
        for each in sorted(self.tried, key=lambda result: (result.instance_hours, result.minutes_over)):
            if not best or each.minutes_over < best[-1].minutes_over:
                best.append(each)
        taken = {each.policy for each in others}
        return tuple(each for each in best if each.policy not in taken)


@dataclass(kw_only=True)
class PolicySearch:
    """Looks for a policy near `today`, with at least `least` instances."""

    case: SimulationCase
    today: Policy
    given: tuple[ScheduledMinimum, ...]
    """Scheduled minimums of workload.toml. They stay, and no others are tried."""
    least: int
    seeds: Sequence[int]
    """The seeds that decide."""
    workers: Workers
    done: Callable[[int], None]
    """Called with the number of seeds just simulated."""
    _tried: dict[Policy, PolicyResult] = field(default_factory=dict)

    def run(self) -> PolicySearchResult:
        """Returns the cheapest confirmed policy, or the recommended one, or the nearest."""
        for begins in self._beginnings():
            self._descend(begins)
        today = nearest = self._result(self.today, self.seeds)
        tried, tolerance = tuple(self._tried.values()), self.case.tolerance
        may_fail = 0 if today.is_within_tolerance else held_out_that_may_fail(tolerance)
        held_out = range(FIRST_HELD_OUT_SEED, FIRST_HELD_OUT_SEED + seeds_held_out(tolerance))
        for policy in self._candidates():
            result = self._result(policy, self.seeds)
            if today.is_within_tolerance and result.instance_hours >= today.instance_hours:
                break  # those that follow cost more
            if result.is_within_tolerance and policy != self.today:
                failed = self._failed(policy, held_out, may_fail)
                if failed <= may_fail:
                    return PolicySearchResult(chosen=result, today=today, tried=tried, held_out=held_out, failed=failed)
                held_out = range(held_out.stop, held_out.stop + len(held_out))
            if not today.is_within_tolerance and _rank(result) < _rank(nearest):
                nearest = result
        return PolicySearchResult(chosen=nearest, today=today, tried=tried)

    def _failed(self, policy: Policy, seeds: range, may_fail: int) -> int:
        """Returns how many held-out seeds fail. Stops counting above `may_fail`."""
        failed = 0
        for first in range(0, len(seeds), HELD_OUT_AT_ONCE):
            failed += self._result(policy, seeds[first : first + HELD_OUT_AT_ONCE]).exceeding(HELD_OUT_MINUTES)
            if failed > may_fail:
                break
        return failed

    def _candidates(self) -> Iterator[Policy]:
        """Yields the cheapest policy without a failing seed, then the cheapest that costs some per cent more, etc."""
        last = 0.0
        for policy, result in sorted(self._tried.items(), key=lambda each: each[1].instance_hours):
            if not result.exceeding() and result.instance_hours >= last * DECIDED_APART:
                last = result.instance_hours
                yield policy

    def policy(self, choice: Choice) -> Policy:
        """Returns the policy of a choice. Its other values are those of `today`."""
        capacity = self.case.curve.capacity
        scheduled, minimum = self.given, choice.minimum
        if choice.margin is not None:
            hourly = hourly_minimums(self._usual, capacity, choice.margin, choice.spare, self.least)
            minimum = max(min(hourly), choice.minimum)
            scheduled = tuple(
                each.model_copy(update={"min_capacity": max(each.min_capacity, minimum)})
                for each in as_schedule(hourly)
            )
        highest = max([minimum, *(each.min_capacity for each in scheduled)])
        return replace(
            self.today,
            target_invocations_per_instance=round(choice.target_share * capacity * 60, 3),
            min_capacity=minimum,
            max_capacity=max(round(self.today.max_capacity * choice.more_at_most), highest),
            scale_out_cooldown_s=choice.scale_out_cooldown_s,
            scale_in_cooldown_s=choice.scale_in_cooldown_s,
            scheduled_minimums=scheduled,
        )

    def _beginnings(self) -> Iterator[Choice]:
        """Yields the recommended policy, one that mostly follows a schedule, and one with a high minimum."""
        share = self.today.target_invocations_per_instance / (self.case.curve.capacity * 60)
        today = Choice(
            target_share=round(share, 3),
            minimum=self.today.min_capacity,
            scale_out_cooldown_s=self.today.scale_out_cooldown_s,
            scale_in_cooldown_s=self.today.scale_in_cooldown_s,
        )
        yield today
        if not self.given:
            yield replace(today, target_share=0.7, minimum=self.least, margin=0.25)
        yield replace(today, target_share=0.8, minimum=self._levels[-1])

    @cached_property
    def _usual(self) -> Floats:
        return usual_load(self.case)

    @cached_property
    def _levels(self) -> list[int]:
        """The minimums to try: from the least to the busiest hour's need and a quarter more."""
        most = max(hourly_minimums(self._usual, self.case.curve.capacity, 0.25, 0, self.least))
        return sorted({self.least, *(round(level) for level in np.linspace(self.least, most, 7))})

    def _descend(self, best: Choice) -> None:
        """Tries choices that differ in one value from the best, which an improvement replaces, until there is none."""
        at, improved = self._try(best), True
        while improved:
            improved = False
            for name, values in {**DIMENSIONS, "minimum": self._levels}.items():
                for value in values:
                    choice = replace(best, **{name: value})
                    # Spare instances need a schedule, and workload.toml may have its own.
                    if choice == best or (choice.spare if choice.margin is None else self.given):
                        continue
                    result = self._try(choice)
                    if _rank(result) < _rank(at):
                        best, at, improved = choice, result, True

    def _try(self, choice: Choice) -> PolicyResult:
        policy = self.policy(choice)
        if policy not in self._tried:
            self._tried[policy] = self._result(policy, range(FIRST_SEARCH_SEED, FIRST_SEARCH_SEED + SEARCH_SEEDS))
        return self._tried[policy]

    def _result(self, policy: Policy, seeds: Sequence[int]) -> PolicyResult:
        return self.workers.run(policy, seeds, self.done)


def seeds_held_out(tolerance: Tolerance) -> int:
    """Returns the fewest seeds that confirm a policy if none of them fails."""
    share = (1 - tolerance.confidence) * HELD_OUT_SHARE
    return math.ceil(math.log(1 - HELD_OUT_CONFIDENCE) / math.log1p(-share))


def held_out_that_may_fail(tolerance: Tolerance) -> int:
    """Returns the most failures that still show a tolerable share of failing seeds, with confidence."""
    seeds, share = seeds_held_out(tolerance), 1 - tolerance.confidence
    unlikely = takewhile(lambda failed: binomial_at_most(failed, seeds, share) <= 1 - HELD_OUT_CONFIDENCE, count())
    return sum(1 for _ in unlikely) - 1


def _rank(result: PolicyResult) -> tuple[float, float, float]:
    """Returns a sort key: seeds over the tolerance, then minutes over the objective, then hours."""
    if result.is_within_tolerance:
        return 0, 0, result.instance_hours
    return result.exceeding(), result.minutes_over, result.instance_hours


def usual_load(case: SimulationCase) -> Floats:
    """Returns each hour's usual load per second, shape (24,), in UTC."""
    hours: list[list[float]] = [[] for _ in range(HOURS)]
    for seed in range(FIRST_SEARCH_SEED, FIRST_SEARCH_SEED + SEARCH_SEEDS):
        load = case.traffic.load(seed)
        for number, first in enumerate(range(-load.start.minute, len(load.rates), 60)):
            rates = load.rates[max(first, 0) : first + 60]
            if len(rates):
                hours[(load.start.hour + number) % HOURS].append(float(np.percentile(rates, USUAL_PERCENTILE)))
    return np.array([float(np.mean(hour)) if hour else 0.0 for hour in hours])


def hourly_minimums(usual: Floats, capacity: float, margin: float, spare: int, least: int) -> list[int]:
    """Returns the instances for each hour's usual load and the margin, and the spare ones."""
    return [max(least, int(np.ceil(load * (1 + margin) / capacity)) + spare) for load in usual.tolist()]


def as_schedule(hourly: Sequence[int]) -> tuple[ScheduledMinimum, ...]:
    """Returns an action for each hour whose minimum changes. A higher minimum begins early."""
    actions = []
    for hour, minimum in enumerate(hourly):
        before = hourly[hour - 1]  # that of hour 0 is the last
        if minimum == before:
            continue
        at, minute = hour, 0
        if minimum > before:
            at, minute = (hour - 1) % HOURS, 60 - RISES_BEFORE_MINUTES
        actions.append(ScheduledMinimum(schedule=f"cron({minute} {at} * * ? *)", min_capacity=minimum))
    return tuple(actions)


def optimised_recommendation(
    recommendation: Recommendation, found: PolicySearchResult, case: SimulationCase, given: Sequence[ScheduledMinimum]
) -> Recommendation:
    """Returns the recommendation with the chosen policy and the traffic that it was chosen on."""
    chosen, result, policy = recommendation.recommended, found.chosen, found.chosen.policy
    assert chosen is not None, "it was simulated"
    autoscaling = Autoscaling(
        min_capacity=policy.min_capacity,
        max_capacity=policy.max_capacity,
        target_invocations_per_instance=policy.target_invocations_per_instance,
        target_share=round(policy.target_invocations_per_instance / (case.curve.capacity * 60), 4),
        scale_out_cooldown_s=policy.scale_out_cooldown_s,
        scale_in_cooldown_s=policy.scale_in_cooldown_s,
        scheduled_minimums=tuple(each for each in policy.scheduled_minimums if each not in given),
        simulated=SimulatedOn(
            trace=case.traffic.name,
            trace_sha256=case.traffic.sha256,
            seeds=len(result.outcomes),
            first_seed=result.outcomes[0].seed,
            confirmed_on_seeds=len(found.held_out or ()),
            failed_confirming_seeds=found.failed,
            first_confirming_seed=found.held_out.start if found.held_out else None,
            tolerance_minutes=case.tolerance.minutes,
            confidence=case.tolerance.confidence,
            minutes_over_objective=result.minutes_over_at_confidence,
            instance_hours=round(result.instance_hours, 3),
            instance_hours_before=round(found.today.instance_hours, 3),
            kept_before=found.today.is_within_tolerance,
        ),
    )
    better = chosen.model_copy(update={"autoscaling": autoscaling})
    candidates = tuple(better if each == chosen else each for each in recommendation.candidates)
    return recommendation.model_copy(update={"recommended": better, "candidates": candidates})
