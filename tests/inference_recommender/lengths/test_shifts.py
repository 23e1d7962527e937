"""Capacity, fleet and latency where lengths shift, from users of each kind of payloads."""

from collections.abc import Mapping

import numpy as np
import pytest

from inference_recommender.capacity.closed_loop import Limit
from inference_recommender.capacity.flow_equivalent import Records, Z
from inference_recommender.lengths.shifts import Bounds, Kind, estimated, kind, shifts
from inference_recommender.sizing.fleet import Demand, fleet
from tests.inference_recommender.lengths.test_tokens import tokenizer_of
from workloads import LatencyObjective, Sizing, load_workload

OBJECTIVE = LatencyObjective(percentile="P99", model_latency_ms=50.0, peak_invocations_per_minute=240_000)
SIZING = Sizing(headroom=0.2)
BOUNDS = Bounds(inputs=64, outputs=32)
LIMIT = Limit(percentile=99.0, latency_ms=50.0)
USERS = {1: 200.0, 2: 300.0, 4: 400.0, 8: 400.0}
"""Requests that so many users of the payloads complete in a second."""


def records(completed: Mapping[int, float]) -> Records:
    """Returns three seconds of each number of users; a request takes what Little's law says, give or take a tenth."""
    users = np.repeat([float(each) for each in completed], 3)
    rates = np.repeat(list(completed.values()), 3)
    return Records(
        users=users,
        completed=rates,
        latencies_ms=(users / rates * 1000)[:, None] * np.exp(0.1 * Z),
        period_s=1.0,
    )


def turned(name: str, *factors: float, outputs: tuple[int, ...] = (10, 12), limit: Limit = LIMIT) -> Kind:
    """Returns a kind whose turns complete so many times what the payloads do."""
    turns = [records({users: rate * factor for users, rate in USERS.items()}) for factor in factors]
    return kind(name, (10, 20), outputs, turns, limit)


def test_the_payloads_of_a_shift_have_its_lengths_and_end_where_the_model_does() -> None:
    tokenizer, rows = tokenizer_of("spellcheck"), load_workload("spellcheck").payloads()
    counts = tokenizer.count(rows)
    found = {each.name: each for each in shifts(tokenizer, rows, [9] * len(rows), BOUNDS)}
    assert list(found) == ["as measured", "+25 %", "+50 %", "all at P90", "all at the limits"]
    assert found["as measured"].rows == rows
    half = tokenizer.count(found["+50 %"].rows)
    assert np.mean(half) == pytest.approx(1.5 * np.mean(counts), rel=0.1)
    assert max(tokenizer.count(found["all at the limits"].rows)) == 64
    assert [each.output_tokens for each in found.values()] == [None, None, None, 9, 32]


def test_an_encoders_shifts_force_no_answers() -> None:
    tokenizer, rows = tokenizer_of("question_answering"), load_workload("question_answering").payloads()
    found = shifts(tokenizer, rows, [0] * len(rows), Bounds(inputs=128, outputs=0))
    assert {each.output_tokens for each in found} == {None}


def test_a_kind_has_what_each_number_of_users_had() -> None:
    found = turned("as measured", 1.0, 1.0)
    assert [each.users for each in found.levels] == [1, 2, 4, 8]
    assert [round(each.invocations_per_minute) for each in found.levels] == [12_000, 18_000, 24_000, 24_000]
    assert found.alone_ms == pytest.approx(5.0, rel=0.02)
    assert found.levels[-1].p50_ms == pytest.approx(20, rel=0.01)
    assert found.levels[-1].latency_ms == pytest.approx(20 * np.exp(0.1 * 2.326), rel=0.01)
    assert 0 < found.invocations_per_minute < found.most
    assert found.by_turn == pytest.approx([found.invocations_per_minute] * 2, rel=0.02)
    assert turned("as measured", 1.0, outputs=()).mean_output_tokens is None


def test_half_the_throughput_is_half_the_capacity_and_a_fleet_for_it() -> None:
    """The limit is far off, so that it changes nothing."""
    far = OBJECTIVE.model_copy(update={"model_latency_ms": 1e5})
    limit = Limit(percentile=99.0, latency_ms=1e5)
    kinds = [turned("as measured", 1.0, 1.0, limit=limit), turned("twice", 0.5, 0.4, limit=limit)]
    before, after = estimated(kinds, far, SIZING, 20_000.0)
    assert before.scale_of_throughput == before.scale_within_limit == 1
    assert before.scale_by_turn == (1, 1)
    assert after.scale_of_throughput == pytest.approx(0.45)
    assert after.scale_within_limit == pytest.approx(0.45, rel=0.01)
    assert after.scale_by_turn == pytest.approx((0.4, 0.5), rel=0.01)
    rate = after.max_invocations_per_minute
    assert rate is not None
    assert rate == pytest.approx(9_000, rel=0.01)
    assert after.instance_count == fleet(rate, Demand.of(far), SIZING).instance_count


def test_near_the_limit_capacity_falls_faster_than_throughput() -> None:
    _, after = estimated([turned("as measured", 1.0), turned("long", 0.4)], OBJECTIVE, SIZING, None)
    assert after.scale_of_throughput == pytest.approx(0.4)
    assert after.scale_within_limit < 0.35
    assert not after.misses_unloaded
    assert (after.max_invocations_per_minute, after.instance_count) == (None, None)


def test_requests_alone_that_miss_the_objective_have_no_fleet() -> None:
    _, after = estimated([turned("as measured", 1.0), turned("long", 0.08)], OBJECTIVE, SIZING, 20_000.0)
    assert after.misses_unloaded
    assert after.unloaded_latency_ms > 60
    assert (after.scale_within_limit, after.max_invocations_per_minute, after.instance_count) == (0, 0, None)
