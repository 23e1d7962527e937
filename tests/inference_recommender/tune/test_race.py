"""The search on services with computed probes."""

import pytest

from inference_recommender.capacity.search import Bottleneck
from inference_recommender.tune.probe_counts import ProbeCounts
from inference_recommender.tune.race import FAST, ConfigurationRefused, EndReason, Entrant, Race
from inference_recommender.tune.space import ServingConfiguration
from tests.builders import known
from tests.inference_recommender.tune.builders import P99, Analytic, a_capacity, configuration

SPACE = [
    configuration(batch, delay, instances)
    for instances in (1, 2)
    for batch in (2, 4, 8, 16)
    for delay in (0.0, 2.0, 5.0)
]
BEST = configuration(8, 2.0, 2)
FEW = [configuration(batch, 0.0, 2) for batch in (2, 4, 8, 16)]


def capacity(each: ServingConfiguration) -> float:
    """Two instances have 1.8 times the capacity of one; the best batch is 8; 2 ms delay gain 6 %, 5 ms lose 10 %."""
    by_batch = {2: 0.5, 4: 0.75, 8: 1.0, 16: 0.9}[each.batch]
    by_delay = {0.0: 1.0, 2.0: 1.06, 5.0: 0.9}[each.serving.max_queue_delay_ms]
    return 10_000 * by_batch * by_delay * (1.8 if each.serving.model_instances == 2 else 1.0)


@pytest.fixture(scope="module")
def raced() -> tuple[Race, Analytic]:
    probe = Analytic(capacity)
    race = Race(configurations=SPACE, send=probe, limit=P99)
    assert race.run() is EndReason.RESOLVED
    return race, probe


def test_few_requests_find_the_best_and_its_capacity(raced: tuple[Race, Analytic]) -> None:
    race, _ = raced
    assert known(race.leader).configuration == BEST
    assert known(race.leader).rate == pytest.approx(capacity(BEST), rel=0.03)
    by_itself = Race(configurations=[BEST], send=Analytic(capacity), limit=P99)
    by_itself.run()
    assert race.requests < 0.4 * len(SPACE) * by_itself.requests


def test_the_family_of_an_overloaded_configuration_is_not_probed(raced: tuple[Race, Analytic]) -> None:
    race, probe = raced
    bounded = {each.configuration: each.out for each in race.entrants if not each.probes}
    assert bounded[configuration(2, 2.0)] == "bounded: its family answered at most 5,500 a minute when overloaded"
    assert not bounded.keys() & probe.configurations


@pytest.mark.parametrize(("probes", "cautious"), [(2, 30_000 / FAST), (30, 29_000.0)])
def test_a_short_measurement_rules_out_little(probes: int, cautious: float) -> None:
    """A machine may be fast for a moment, which would rule out equal configurations."""
    seen = Analytic(capacity)(BEST, 10_000.0, 3.0)
    entrant = Entrant(configuration=BEST, probes=[seen] * probes)
    assert entrant.cautious == 0
    entrant.estimate = a_capacity(30_000.0, 29_000.0, 31_000.0)
    assert entrant.cautious == cautious


def test_a_search_without_a_rate_within_the_limit_has_no_leader() -> None:
    race = Race(configurations=SPACE[:3], send=Analytic(lambda each: 5.0), limit=P99)
    assert race.run() is EndReason.NOTHING_KEEPS
    assert race.leader is None
    assert race.entrants[0].out == "late: it does not keep the limit at 60 a minute"


def test_a_rejected_configuration_and_one_whose_probe_fails_twice_drop_out() -> None:
    analytic = Analytic(capacity)
    failures = {FEW[0]: 1, FEW[2]: 2}

    def probe(asked: ServingConfiguration, rate: float, duration_s: float) -> ProbeCounts:
        if asked.batch == 16:
            raise ConfigurationRefused("the engine takes batches up to 8")
        if failures.get(asked):
            failures[asked] -= 1
            raise Bottleneck("generator lagged")
        return analytic(asked, rate, duration_s)

    race = Race(configurations=FEW, send=probe, limit=P99)
    assert race.run() is EndReason.RESOLVED
    outs = {each.configuration.batch: each.out for each in race.entrants}
    assert outs[16] == "refused: the engine takes batches up to 8"
    assert outs[8] == "not judged: generator lagged"
    assert analytic.configurations == {FEW[0], FEW[1]}
    assert known(race.leader).configuration.batch == 4


def test_a_generator_that_always_lags_ends_the_search() -> None:
    def probe(asked: ServingConfiguration, rate: float, duration_s: float) -> ProbeCounts:
        raise Bottleneck("generator lagged")

    race = Race(configurations=SPACE, send=probe, limit=P99)
    assert race.run() is EndReason.BOTTLENECK
    assert race.complaint == "generator lagged"


def test_a_search_out_of_time_ends_with_the_best_so_far() -> None:
    race = Race(configurations=SPACE, send=Analytic(capacity), limit=P99, longest_s=70.0)
    assert race.run() is EndReason.TIME
    assert race.leader is not None
    assert race.spent_s <= 70
