"""Searches the cheapest policy that keeps a tolerance. Pure, but for the processes that simulate.

A policy is a choice of six things: the target as a share of an instance's capacity, the minimum, the maximum, both
cooldowns, and scheduled minimums: how much more than the hour's usual load they bear, and how many spare instances they
have. A descent changes one of them at a time, from several beginnings, while that makes the policy better: fewer seeds
over the tolerance first, then fewer minutes over the objective, then fewer instance hours. All choices see the same
seeds, so that they differ by what they are and not by luck.

Those that kept the tolerance, the cheapest first, are then simulated on seeds that the search has not seen, which
decide, and those that keep it there on seeds held out from both. Each policy has held-out seeds of its own, so that
trying several does not look for luck. A seed fails there that is over the objective for more than half the tolerated
minutes. If the recommended policy keeps the tolerance, the choice must not be worse, and none may fail. Else failures
are allowed that still show, with 95 % confidence, that fewer seeds fail than the tolerance leaves. There are enough
held-out seeds that no failure among them shows a third of that share: if none of n fails, fewer than a share p do if
(1 - p)^n = 0.05.

The first policy that is confirmed is chosen. If none costs less than the recommended policy, that one stays; if
it exceeds the tolerance, too, the policy that comes nearest is shown and not written.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from inference_recommender.capacity.statistics import Floats
from inference_recommender.simulate.policy import Outcome, Policy
from inference_recommender.simulate.result import Result, Tolerance
from inference_recommender.simulate.seeds import Case, Workers
from workloads import Autoscaling, Recommendation, ScheduledMinimum, SimulatedOn

SEARCH_SEEDS = 24
FIRST_SEARCH_SEED, FIRST_HELD_OUT_SEED = 1_000_000, 2_000_000
"""The search's seeds and those held out begin here, beyond those that decide."""
HELD_OUT_MINUTES = 0.5
"""Share of the tolerated minutes that a seed held out may have."""
HELD_OUT_SHARE = 1 / 3
"""Share of the seeds that the tolerance leaves: that fewer fail is what held-out seeds show if none of them does."""
HELD_OUT_CONFIDENCE = 0.95
HELD_OUT_AT_ONCE = 100
"""After so many seeds each it is asked whether too many failed."""
DECIDED_APART = 1.02
"""Policies that are simulated on the seeds that decide cost at least so much more, one after the other."""
USUAL_PERCENTILE = 95
"""An hour's usual load is this percentile of its minutes, the mean over days and seeds."""
RISES_BEFORE_MINUTES = 15
"""How long before its hour a higher minimum begins: instances take minutes to start."""
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
    """The share that scheduled minimums bear beyond the hour's usual load; None: there are none."""
    spare: int = 0
    """Instances that scheduled minimums have beside those."""
    more_at_most: float = 1.0
    """The maximum, as a multiple of the recommended one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The result of a search. `tried` are all policies, on the search's seeds."""

    chosen: Result
    today: Result
    choice: Choice | None
    """None where the recommended policy is the best."""
    tried: tuple[Result, ...]
    held_out: range | None
    """The seeds that confirmed the choice; None: it is the recommended policy, or was not confirmed."""
    failed: int
    """How many of them failed nevertheless."""

    @property
    def safe(self) -> bool:
        """Tells whether the choice was confirmed, or is the recommended policy and keeps the tolerance."""
        return self.held_out is not None or (self.choice is None and self.today.kept)

    def frontier(self) -> tuple[Result, ...]:
        """Returns the tried policies than which none has both fewer hours and fewer minutes over the objective."""
        return frontier(self.tried)


def frontier(tried: Sequence[Result]) -> tuple[Result, ...]:
    """Returns the policies than which none has both fewer hours and fewer minutes over, the cheapest first."""
    best: list[Result] = []
    for each in sorted(tried, key=lambda result: (result.instance_hours, result.minutes_over)):
        if not best or each.minutes_over < best[-1].minutes_over:
            best.append(each)
    return tuple(best)


@dataclass(kw_only=True)
class Search:
    """Looks for a policy around `today`, which has at least `least` instances."""

    case: Case
    today: Policy
    given: tuple[ScheduledMinimum, ...]
    """Scheduled minimums that people wrote: they stay, and no others are tried."""
    least: int
    seeds: Sequence[int]
    """Those that decide."""
    tolerance: Tolerance
    price_per_hour_usd: float | None
    workers: Workers
    done: Callable[[int], None]
    """Is told of every few seeds that were simulated."""
    _tried: dict[Policy, Result] = field(default_factory=dict)

    @property
    def tried(self) -> int:
        """The policies that were simulated on the search's seeds so far."""
        return len(self._tried)

    def best_so_far(self) -> tuple[Result, ...]:
        """Returns what a search that was interrupted has: the frontier on its own seeds, the best policy first."""
        found = frontier(tuple(self._tried.values()))
        return tuple(sorted(found, key=_rank))

    def run(self) -> Found:
        self._usual = usual_load(self.case)
        self._minutes = self.case.traffic.load(0).minutes
        kept: dict[Policy, Choice] = {}
        for begins in self._beginnings():
            for tried, result in self._descend(begins):
                if not result.exceeding:
                    kept[result.policy] = tried
        return self._decided(kept)

    def _decided(self, kept: Mapping[Policy, Choice]) -> Found:
        """Returns the cheapest of the policies that is confirmed, or the recommended one, or what comes nearest."""
        today = self._result(self.today, self.seeds)
        chosen, choice, confirmed, failed = today, None, None, 0
        held_out = range(FIRST_HELD_OUT_SEED, FIRST_HELD_OUT_SEED + seeds_held_out(self.tolerance))
        may_fail = 0 if today.kept else held_out_that_may_fail(self.tolerance)
        for policy in self._spaced(sorted(kept, key=lambda policy: self._tried[policy].instance_hours)):
            result = self._result(policy, self.seeds)
            if today.kept and result.instance_hours >= today.instance_hours:
                break  # those that follow cost more
            if result.kept and policy != self.today:
                failed = self._failed(policy, held_out, may_fail)
                if failed <= may_fail:
                    chosen, choice, confirmed = result, kept[policy], held_out
                    break
                held_out = range(held_out.stop, held_out.stop + len(held_out))
            if not today.kept and _rank(result) < _rank(chosen):
                chosen, choice = result, kept[policy]
        tried = tuple(self._tried.values())
        return Found(
            chosen=chosen,
            today=today,
            choice=choice,
            tried=tried,
            held_out=confirmed,
            failed=failed if confirmed else 0,
        )

    def _failed(self, policy: Policy, seeds: range, may_fail: int) -> int:
        """Returns how many held-out seeds fail, or, once more do than may, how many did so far."""
        tolerance = replace(self.tolerance, minutes=self.tolerance.minutes * HELD_OUT_MINUTES)
        failed = 0
        for first in range(0, len(seeds), HELD_OUT_AT_ONCE):
            result = self._result(policy, seeds[first : first + HELD_OUT_AT_ONCE])
            failed += replace(result, tolerance=tolerance).exceeding
            if failed > may_fail:
                break
        return failed

    def _spaced(self, policies: Sequence[Policy]) -> Iterator[Policy]:
        """Yields the cheapest policy, then each time the cheapest one that costs some per cent more than the last."""
        last = 0.0
        for policy in policies:
            hours = self._tried[policy].instance_hours
            if hours >= last * DECIDED_APART:
                last = hours
                yield policy

    def policy(self, choice: Choice) -> Policy:
        """Returns the policy of a choice; what it does not choose is as today."""
        capacity = self.case.curve.capacity
        scheduled, minimum = self.given, choice.minimum
        if choice.margin is not None:
            hourly = hourly_minimums(self._usual, capacity, choice.margin, choice.spare, self.least)
            scheduled, minimum = as_schedule(hourly), max(min(hourly), choice.minimum)
            scheduled = tuple(
                each.model_copy(update={"min_capacity": max(each.min_capacity, minimum)}) for each in scheduled
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
        """Yields the recommended policy, or nearly, and one whose schedule does most of the work."""
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
        yield replace(today, target_share=0.8, minimum=self._levels()[-1])

    def _levels(self) -> list[int]:
        """Returns the minimums that are tried: from the least to what the busiest hour needs and a quarter more."""
        most = max(hourly_minimums(self._usual, self.case.curve.capacity, 0.25, 0, self.least))
        return sorted({self.least, *(round(level) for level in np.linspace(self.least, most, 7))})

    def _descend(self, begins: Choice) -> Iterator[tuple[Choice, Result]]:
        """Yields every choice that is tried on the way down from a beginning."""
        best, at = begins, self._try(begins)
        yield best, at
        improved = True
        while improved:
            improved = False
            for name, values in {**DIMENSIONS, "minimum": tuple(self._levels())}.items():
                for value in values:
                    choice = replace(best, **{name: value})
                    if choice == best or not self._makes_sense(choice):
                        continue
                    result = self._try(choice)
                    yield choice, result
                    if _rank(result) < _rank(at):
                        best, at, improved = choice, result, True

    def _makes_sense(self, choice: Choice) -> bool:
        """Tells whether a choice says anything: spare instances are of a schedule, and a workload may have its own."""
        if choice.margin is None:
            return not choice.spare
        return not self.given

    def _try(self, choice: Choice) -> Result:
        policy = self.policy(choice)
        if policy not in self._tried:
            self._tried[policy] = self._result(policy, range(FIRST_SEARCH_SEED, FIRST_SEARCH_SEED + SEARCH_SEEDS))
        return self._tried[policy]

    def _result(self, policy: Policy, seeds: Sequence[int]) -> Result:
        outcomes: tuple[Outcome, ...] = self.workers.run(policy, seeds, self.done)
        return Result(
            policy=policy,
            outcomes=outcomes,
            minutes=self._minutes,
            price_per_hour_usd=self.price_per_hour_usd,
            tolerance=self.tolerance,
        )


def seeds_held_out(tolerance: Tolerance) -> int:
    """Returns the fewest seeds that confirm a policy if none of them fails."""
    share = (1 - tolerance.confidence) * HELD_OUT_SHARE
    return math.ceil(math.log(1 - HELD_OUT_CONFIDENCE) / math.log1p(-share))


def held_out_that_may_fail(tolerance: Tolerance) -> int:
    """Returns the most failures that still show, with confidence, that fewer seeds fail than are tolerated."""
    seeds, share = seeds_held_out(tolerance), 1 - tolerance.confidence
    likely, failed = 0.0, -1
    while likely <= 1 - HELD_OUT_CONFIDENCE:
        failed += 1
        likely += math.comb(seeds, failed) * share**failed * tolerance.confidence ** (seeds - failed)
    return failed - 1


def _rank(result: Result) -> tuple[float, float, float]:
    """Returns what is smaller for a better policy: seeds too many, then minutes over the objective, then hours.

    Minutes count only where the tolerance is exceeded.
    """
    if result.kept:
        return 0, 0, result.instance_hours
    return result.exceeding, result.minutes_over, result.instance_hours


def usual_load(case: Case) -> Floats:
    """Returns each hour's usual load per second, shape (24,), in UTC."""
    hours: list[list[float]] = [[] for _ in range(HOURS)]
    for seed in range(FIRST_SEARCH_SEED, FIRST_SEARCH_SEED + SEARCH_SEEDS):
        load = case.traffic.load(seed)
        each = 3600 // load.step_s
        skipped = load.start.minute * 60 // load.step_s
        first_hour = load.start.hour
        for number, first in enumerate(range(-skipped, len(load.rates), each)):
            rates = load.rates[max(first, 0) : first + each]
            if len(rates):
                hours[(first_hour + number) % HOURS].append(float(np.percentile(rates, USUAL_PERCENTILE)))
    known = [float(np.mean(hour)) if hour else 0.0 for hour in hours]
    return np.array(known)


def hourly_minimums(usual: Floats, capacity: float, margin: float, spare: int, least: int) -> list[int]:
    """Returns the instances that bear each hour's usual load and the margin, and the spare ones."""
    return [max(least, int(np.ceil(load * (1 + margin) / capacity)) + spare) for load in usual.tolist()]


def as_schedule(hourly: Sequence[int]) -> tuple[ScheduledMinimum, ...]:
    """Returns an action for each hour whose minimum is another than the hour's before; what rises does so early."""
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


def recommended(
    recommendation: Recommendation, found: Found, case: Case, given: Sequence[ScheduledMinimum]
) -> Recommendation:
    """Returns the recommendation with the policy that was found, and with what it was found on."""
    chosen, before = recommendation.recommended, found.today
    assert chosen is not None, "it was simulated"
    policy, result = found.chosen.policy, found.chosen
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
            tolerance_minutes=result.tolerance.minutes,
            confidence=result.tolerance.confidence,
            minutes_over_objective=result.minutes_over_at_confidence,
            instance_hours=round(result.instance_hours, 3),
            instance_hours_before=round(before.instance_hours, 3),
            kept_before=before.kept,
        ),
    )
    better = chosen.model_copy(update={"autoscaling": autoscaling})
    candidates = tuple(better if each == chosen else each for each in recommendation.candidates)
    return recommendation.model_copy(update={"recommended": better, "candidates": candidates})
