"""Capacity, fleet and latency where lengths shift, against queues that have a closed form."""

import numpy as np
import pytest

from inference_recommender.capacity.statistics import Floats
from inference_recommender.lengths.shifts import Bounds, Lengths, Service, estimated, rate_within, shifted
from inference_recommender.sizing.fleet import Demand, fleet
from workloads import LatencyObjective, Sizing

OBJECTIVE = LatencyObjective(percentile="P99", model_latency_ms=50.0, peak_invocations_per_minute=240_000)
SIZING = Sizing(headroom=0.2)
BOUNDS = Bounds(inputs=64, outputs=32)


def service(predict: object, batch: int = 4, scatter: Floats | None = None) -> Service:
    return Service(
        predict=predict,  # type: ignore[arg-type]
        scatter=np.ones(1) if scatter is None else scatter,
        shortest=(1, 0),
        longest=(40, 40),
        batch=batch,
    )


def payloads(count: int = 100) -> Lengths:
    return Lengths(inputs=np.arange(1.0, count + 1) % 20 + 5, outputs=np.arange(1.0, count + 1) % 20 + 4)


def test_the_shifts_end_where_the_model_does() -> None:
    kinds = shifted(payloads(), BOUNDS)
    assert list(kinds) == ["as measured", "+25 %", "+50 %", "all at P90", "all at the limits"]
    assert kinds["+50 %"].inputs.max() == 36
    assert kinds["+50 %"].outputs.max() == 32  # 34.5, and the model writes no more
    assert set(kinds["all at P90"].inputs) == {22.0}
    assert set(kinds["all at the limits"].outputs) == {32.0}


@pytest.mark.parametrize(("limit_ms", "late"), [(100.0, 0.01), (40.0, 0.05)])
def test_the_rate_within_a_limit_is_that_of_a_queue_in_closed_form(limit_ms: float, late: float) -> None:
    """M/M/1: P(time > t) = exp(−(μ − λ)·t), so λ = μ + ln(late) / t."""
    shares = (np.arange(200_000) + 0.5) / 200_000
    times = -5.0 * np.log(1 - shares)
    assert rate_within(times, limit_ms, late) == pytest.approx(1 / 5 + np.log(late) / limit_ms, rel=0.02)


def test_no_rate_keeps_a_limit_that_a_request_alone_misses() -> None:
    assert rate_within(np.full(10, 60.0), 50.0, 0.01) == 0
    assert rate_within(np.array([1.0] * 98 + [60.0] * 2), 50.0, 0.01) == 0
    assert rate_within(np.array([1.0] * 995 + [60.0] * 5), 50.0, 0.01) > 0


def test_twice_the_service_time_is_half_the_capacity_and_a_fleet_for_it() -> None:
    """The limit is far off, so that it changes nothing."""
    far = OBJECTIVE.model_copy(update={"model_latency_ms": 1e6})
    doubled = {"as measured": payloads(), "twice": Lengths(inputs=payloads().inputs * 2, outputs=payloads().outputs)}
    before, after = estimated(service(lambda n, m: 0.1 * n), doubled, far, SIZING, 20_000.0)
    assert before.scale_by_service_time == before.scale_in_full_batches == before.scale_within_limit == 1
    assert after.scale_by_service_time == pytest.approx(0.5)
    assert after.scale_in_full_batches == pytest.approx(0.5)
    assert after.scale_within_limit == pytest.approx(0.5, rel=1e-3)
    assert after.max_invocations_per_minute == pytest.approx(10_000, rel=1e-3)
    rate = after.max_invocations_per_minute
    assert rate is not None
    assert after.instance_count == fleet(rate, Demand.of(far), SIZING).instance_count == 29
    assert (before.extrapolated, after.extrapolated) == (False, True)


def test_near_the_limit_capacity_falls_faster_than_the_service_time_rises() -> None:
    kinds = {"as measured": payloads(), "all long": Lengths(inputs=np.full(9, 40.0), outputs=np.full(9, 32.0))}
    _, after = estimated(service(lambda n, m: n), kinds, OBJECTIVE, SIZING, 20_000.0)
    assert after.scale_by_service_time == pytest.approx(14.5 / 40)
    assert after.scale_within_limit < 0.5 * after.scale_by_service_time
    assert not after.misses_unloaded


def test_a_batch_is_as_slow_as_its_longest_so_that_longer_ones_cost_it_less() -> None:
    few_long = Lengths(inputs=np.array([5.0] * 9 + [50.0]), outputs=np.zeros(10))
    kinds = {"as measured": few_long, "all long": Lengths(inputs=np.full(10, 50.0), outputs=np.zeros(10))}
    _, after = estimated(service(lambda n, m: n, batch=32), kinds, OBJECTIVE, SIZING, None)
    assert after.scale_by_service_time == pytest.approx(9.5 / 50)
    assert after.scale_in_full_batches > 0.9
    assert (after.max_invocations_per_minute, after.instance_count) == (None, None)
    assert after.mean_output_tokens is None


def test_requests_alone_that_miss_the_objective_have_no_fleet() -> None:
    kinds = {"as measured": payloads(), "all long": Lengths(inputs=np.full(9, 60.0), outputs=np.full(9, 32.0))}
    spread = np.array([0.9, 1.0, 1.0, 1.1])
    _, after = estimated(service(lambda n, m: n, scatter=spread), kinds, OBJECTIVE, SIZING, 20_000.0)
    assert after.misses_unloaded
    assert after.unloaded_latency_ms == pytest.approx(66, rel=0.01)
    assert (after.scale_within_limit, after.max_invocations_per_minute, after.instance_count) == (0, 0, None)
