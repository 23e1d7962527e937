"""The sequential test of a limit: when it looks, and its verdicts on services of known percentiles."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_recommender.capacity.probe import ProbeRecords
from inference_recommender.capacity.statistics import Limit
from inference_recommender.measure.percentile_interval import ERROR, PercentileInterval, Verdict
from inference_recommender.measure.sequential import (
    SequentialTest,
    errors,
    first_conclusive_s,
    looks_s,
    shortest_s,
    warm_up,
)
from tests.inference_recommender.measure.proof_service import bearing

P90 = Limit(percentile=90.0, latency_ms=50.0)


@settings(max_examples=40)
@given(rate=st.floats(1, 1e6), percentile=st.sampled_from([50.0, 95.0, 99.0, 99.9]), longest_s=st.floats(1, 100_000))
def test_it_looks_ever_later_and_last_at_its_end(rate: float, percentile: float, longest_s: float) -> None:
    looks = looks_s(rate, percentile, longest_s)
    if not looks:
        assert longest_s < shortest_s(rate, percentile)
        return
    assert looks[-1] == pytest.approx(longest_s)
    assert sum(errors(looks)) == pytest.approx(ERROR)
    assert looks[0] >= max(min(10.0, longest_s), shortest_s(rate, percentile)) - 1e-6
    assert all(later / earlier >= 1.4 or len(looks) == 2 for earlier, later in pairwise(looks))
    assert all(later / earlier <= 2.9 for earlier, later in pairwise(looks))


def test_the_looks_of_five_minutes_begin_at_10_s_or_with_enough_requests() -> None:
    assert [round(look) for look in looks_s(24_000, 99.0, 300)] == [10, 20, 39, 77, 152, 300]
    assert (looks_s(24_000, 99.0, 8), looks_s(60, 99.0, 300)) == ((8.0,), ())
    looks = looks_s(600, 99.0, 300)
    assert looks[0] == pytest.approx(shortest_s(600, 99.0)) == pytest.approx(437 / 10 / 0.9)
    assert first_conclusive_s(600, 99.0, looks) == looks[1]
    assert first_conclusive_s(24_000, 99.0, looks_s(24_000, 99.0, 300)) == 10.0


def _test(capacity: float, rate: float, seed: int, longest_s: float = 240.0) -> SequentialTest:
    return SequentialTest(
        probe=bearing(capacity, seed), rate_per_minute=rate, limit=P90, looks_s=looks_s(rate, 90.0, longest_s)
    )


@pytest.mark.parametrize(("rate", "verdict"), [(2000, "kept"), (4500, "missed"), (3000, "unclear")])
def test_the_verdict_follows_the_capacity_in_19_of_20_runs(rate: float, verdict: Verdict) -> None:
    assert [_test(3000, rate, seed).run() for seed in range(20)].count(verdict) >= 19


def test_it_stops_at_the_first_clear_look_and_reports_each_look() -> None:
    looked: list[PercentileInterval] = []
    test = _test(30_000, 2000, 1)
    assert test.verdict == "unclear"
    test.on_look = looked.append
    assert test.run() == "kept"
    assert [round(seen.duration_s) for seen in test.seen] == [10]
    assert looked == [test.interval]


@pytest.mark.parametrize(
    ("falls_by", "saturated_s", "warm_up_s"),
    [(0.0, 0.0, 5), (0.05, 0.0, 60), (0.0, 15.0, 20), (0.0, 600.0, 60)],
    ids=["warm", "never settles", "starts above the limit", "stays above the limit"],
)
def test_a_service_is_warmed_up_until_it_settles_within_the_limit(
    falls_by: float, saturated_s: float, warm_up_s: float
) -> None:
    """The latency falls by a share of itself in each second, and is above the limit for `saturated_s`."""
    spent = [0.0]

    def probe(rate_per_minute: float, duration_s: float) -> ProbeRecords:
        intended = np.linspace(0, duration_s, 200, endpoint=False)
        latencies = 20.0 * np.exp(-falls_by * (spent[0] + intended))
        latencies[spent[0] + intended < saturated_s] = 500.0
        spent[0] += duration_s
        return ProbeRecords(duration_s=duration_s, intended_s=intended, latencies_ms=latencies)

    warm_up(probe, 1200, Limit(percentile=99.0, latency_ms=50.0))
    assert spent[0] == warm_up_s
