"""The search of a policy: cheaper within the tolerance, never worse than the recommended one, and what it writes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from inference_recommender.simulate import policy_search
from inference_recommender.simulate.policy import FIRST_MONDAY, Policy, Timing, TrafficLoad, TrafficSource
from inference_recommender.simulate.policy_search import (
    FIRST_HELD_OUT_SEED,
    FIRST_SEARCH_SEED,
    PolicySearch,
    PolicySearchResult,
    as_schedule,
    held_out_that_may_fail,
    hourly_minimums,
    optimised_recommendation,
    seeds_held_out,
    usual_load,
)
from inference_recommender.simulate.seeds import PolicyResult, SimulationCase, Tolerance, Workers
from inference_recommender.simulate.shapes import shape
from inference_recommender.simulate.simulation import scheduled
from inference_recommender.simulate.trace import Trace
from tests.builders import a_candidate, a_recommendation, known
from tests.inference_recommender.simulate.test_simulation import CURVE, OBJECTIVE
from workloads import ScheduledMinimum, Sizing

TODAY = Policy(target_invocations_per_instance=3000.0, min_capacity=2, max_capacity=20)
"""Half of the capacity of an instance, 6,000 a minute."""
QUICK = Tolerance(minutes=2, confidence=0.9)
"""Needs 89 held-out seeds, and not 898."""


@dataclass(frozen=True)
class Waves:
    """Two hours between 400 and 600 requests a second."""

    name: str = "waves"
    sha256: str = "b" * 64

    def load(self, seed: int) -> TrafficLoad:
        wave = 500 + 100 * np.sin(2 * np.pi * (np.arange(120) + 7 * seed % 120) / 120)
        return TrafficLoad(start=FIRST_MONDAY, rates=wave)


JUMP = Trace(name="jump", sha256="c" * 64, start=FIRST_MONDAY, rates=np.repeat([90.0, 900.0], 30))
"""A quiet half hour, and then a busy one that no autoscaling can foresee."""


def a_case(traffic: TrafficSource) -> SimulationCase:
    return SimulationCase(traffic=traffic, curve=CURVE, timing=Timing(), tolerance=QUICK)


def search(
    case: SimulationCase,
    given: tuple[ScheduledMinimum, ...] = (),
    seeds: Sequence[int] = range(20),
    workers: Workers | None = None,
) -> PolicySearchResult:
    return PolicySearch(
        case=case,
        today=replace(TODAY, scheduled_minimums=given),
        given=given,
        least=2,
        seeds=seeds,
        workers=workers or Workers(case),
        done=lambda count: None,
    ).run()


@pytest.fixture(scope="module")
def few_seeds() -> Iterator[None]:
    """Gives the search fewer seeds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy_search, "SEARCH_SEEDS", 6)
        yield


@pytest.fixture(scope="module")
def waves(few_seeds: None) -> PolicySearchResult:
    return search(a_case(Waves()))


def test_a_cheaper_policy_within_the_tolerance_is_chosen(waves: PolicySearchResult) -> None:
    assert waves.today.is_within_tolerance
    assert waves.chosen.is_within_tolerance
    assert waves.chosen.instance_hours < 0.9 * waves.today.instance_hours


@pytest.mark.parametrize(
    "traffic", [Waves(), JUMP, shape("flash-sale", OBJECTIVE, Sizing())], ids=lambda each: each.name
)
def test_the_chosen_policy_is_never_worse_than_the_recommended_one(traffic: TrafficSource, few_seeds: None) -> None:
    """Also on seeds that neither the search nor its confirmation has used."""
    case = a_case(traffic)
    found = search(case, seeds=range(5))
    fresh = [
        Workers(case).run(each.policy, range(50_000, 50_005), lambda _: None) for each in (found.chosen, found.today)
    ]
    for chosen, today in ((found.chosen, found.today), fresh):
        assert chosen.is_within_tolerance >= today.is_within_tolerance
        if chosen.is_within_tolerance == today.is_within_tolerance:
            assert (chosen.exceeding(), chosen.instance_hours) <= (today.exceeding(), today.instance_hours)


def test_the_frontier_has_no_policy_that_another_beats_in_both(waves: PolicySearchResult) -> None:
    frontier = waves.frontier([waves.chosen])
    hours, minutes = [[getattr(each, name) for each in frontier] for name in ("instance_hours", "minutes_over")]
    assert hours == sorted(hours)
    assert minutes == sorted(set(minutes), reverse=True)
    assert waves.chosen.policy not in {each.policy for each in frontier} < {each.policy for each in waves.tried}


def test_a_jump_that_the_recommended_policy_misses_needs_a_minimum(few_seeds: None) -> None:
    found = search(a_case(JUMP), seeds=range(3))
    assert not found.today.is_within_tolerance
    assert found.chosen.is_within_tolerance
    assert found.chosen.policy.min_capacity >= 9 or found.chosen.policy.scheduled_minimums


class MinutesTable(Workers):
    """Workers that compute the minutes over the objective from a policy's target and a seed."""

    def __init__(self, case: SimulationCase, minutes: Callable[[float, int], float]) -> None:
        super().__init__(case)
        self._outcome = case.run(TODAY, 0).outcome(0)
        self._minutes = minutes
        self.held_out: dict[float, list[int]] = {}
        """The held-out seeds by target."""

    def run(self, policy: Policy, seeds: Sequence[int], done: Callable[[int], None]) -> PolicyResult:
        target = policy.target_invocations_per_instance
        if seeds[0] >= FIRST_HELD_OUT_SEED:
            self.held_out.setdefault(target, []).extend(seeds)
        hours = 100 - target / 100
        outcomes = (
            replace(self._outcome, seed=seed, instance_hours=hours, minutes_over_objective=self._minutes(target, seed))
            for seed in seeds
        )
        return self._case.result(policy, tuple(outcomes))


def searched_in_table(minutes: Callable[[float, int], float]) -> tuple[PolicySearchResult, MinutesTable]:
    table = MinutesTable(a_case(JUMP), minutes)
    return search(a_case(JUMP), workers=table), table


def test_a_policy_that_only_the_searchs_seeds_like_is_not_chosen() -> None:
    """On the seeds that decide, only targets up to 4,200 are within the tolerance."""
    found, table = searched_in_table(lambda target, seed: 9 if seed < FIRST_SEARCH_SEED and target > 4200 else 0)
    assert found.chosen.policy.target_invocations_per_instance == 4200
    assert list(table.held_out) == [4200]
    assert found.held_out == range(FIRST_HELD_OUT_SEED, FIRST_HELD_OUT_SEED + 89)
    assert found.safe


def test_a_policy_that_fails_on_held_out_seeds_is_followed_by_the_next_with_its_own_seeds() -> None:
    def minutes(target: float, seed: int) -> float:
        return 1.5 if seed >= FIRST_HELD_OUT_SEED and target > 3600 and seed % 80 == 7 else 0

    found, table = searched_in_table(minutes)
    assert found.chosen.policy.target_invocations_per_instance == 3600, "more than half of two minutes is too much"
    assert found.held_out is not None
    assert len(table.held_out) > 1
    simulated = [seed for seeds in table.held_out.values() for seed in seeds]
    assert len(set(simulated)) == len(simulated)


def test_the_recommended_policy_stays_if_no_cheaper_one_is_confirmed() -> None:
    found, table = searched_in_table(lambda target, seed: 3 if seed >= FIRST_HELD_OUT_SEED else 0)
    assert (found.chosen, found.held_out, found.safe) == (found.today, None, True)
    assert all(target > TODAY.target_invocations_per_instance for target in table.held_out)


def test_the_choice_is_not_safe_if_no_policy_is_confirmed_and_the_recommended_one_fails() -> None:
    def minutes(target: float, seed: int) -> float:
        return 3 if seed >= FIRST_HELD_OUT_SEED or (seed < FIRST_SEARCH_SEED and target == 3000) else 0

    found, _ = searched_in_table(minutes)
    assert not found.today.is_within_tolerance
    assert found.chosen.is_within_tolerance, "it is the nearest one"
    assert not found.safe


def test_as_many_held_out_seeds_may_fail_as_the_tolerance_still_shows() -> None:
    """The recommended policy exceeds the tolerance."""

    def searched(failing: int) -> PolicySearchResult:
        def minutes(target: float, seed: int) -> float:
            if seed >= FIRST_HELD_OUT_SEED:
                return 3 if seed < FIRST_HELD_OUT_SEED + failing else 0
            return 3 if seed < FIRST_SEARCH_SEED and target == 3000 else 0

        return searched_in_table(minutes)[0]

    may_fail = held_out_that_may_fail(QUICK)
    within, beyond = searched(may_fail), searched(may_fail + 1)
    assert (within.safe, within.failed) == (True, may_fail)
    assert (beyond.safe, beyond.failed) == (True, 0), "the next policy, on seeds of its own"
    assert beyond.chosen.policy != within.chosen.policy


def test_the_number_of_held_out_seeds_shows_a_third_of_the_tolerated_share() -> None:
    seeds = seeds_held_out(Tolerance())
    assert seeds == 898
    assert (1 - 0.01 / 3) ** seeds <= 0.05 < (1 - 0.01 / 3) ** (seeds - 1)
    assert held_out_that_may_fail(Tolerance()) == 3, "the 95 % bound of 3 in 898 is 0.86 %, that of 4 is 1.02 %"


def test_scheduled_minimums_of_the_workload_stay_and_no_others_are_tried() -> None:
    own = (ScheduledMinimum(schedule="cron(0 0 * * ? *)", min_capacity=4),)
    found = search(a_case(JUMP), given=own, workers=MinutesTable(a_case(JUMP), lambda target, seed: 0))
    assert {each.policy.scheduled_minimums for each in found.tried} == {own}


def test_an_hours_minimum_serves_its_usual_load_with_a_margin_and_spare_instances() -> None:
    usual = usual_load(a_case(JUMP))
    assert usual.shape == (24,)
    assert (usual[0], usual[1]) == (900, 0), "nothing is known of the second hour"
    assert hourly_minimums(usual[:2], 100.0, 0.25, 1, 2) == [13, 2]


def test_a_schedule_rises_before_its_hour_and_falls_on_it() -> None:
    hourly = [2] * 8 + [5] * 4 + [3] * 12
    actions = as_schedule(hourly)
    assert [(each.schedule, each.min_capacity) for each in actions] == [
        ("cron(0 0 * * ? *)", 2),
        ("cron(45 7 * * ? *)", 5),
        ("cron(0 12 * * ? *)", 3),
    ]
    assert [minimum for _, minimum in scheduled(actions, FIRST_MONDAY, 86_400)] == [2, 5, 3]
    assert as_schedule([4] * 24) == ()


def test_the_recommendation_gets_the_policy_and_its_traffic(waves: PolicySearchResult) -> None:
    after = optimised_recommendation(a_recommendation(a_candidate()), waves, a_case(Waves()), ())
    assert known(after.recommended) in after.candidates
    scaling, policy = known(after.recommended).autoscaling, waves.chosen.policy
    assert scaling is not None
    for name in ("target_invocations_per_instance", "min_capacity", "max_capacity", "scale_in_cooldown_s"):
        assert getattr(scaling, name) == getattr(policy, name)
    assert scaling.scheduled_minimums == policy.scheduled_minimums
    assert scaling.target_share == pytest.approx(policy.target_invocations_per_instance / 6000, abs=1e-4)
    simulated, held_out = scaling.simulated, waves.held_out
    assert simulated is not None
    assert held_out is not None
    assert (simulated.trace, simulated.trace_sha256) == ("waves", "b" * 64)
    assert (simulated.seeds, simulated.kept_before) == (20, True)
    assert (simulated.confirmed_on_seeds, simulated.first_confirming_seed) == (89, held_out.start)
    assert simulated.instance_hours < simulated.instance_hours_before
