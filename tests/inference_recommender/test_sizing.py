"""Instance count, autoscaling and cost, against hand computation and by properties."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.measurement import Measurement
from inference_recommender.prices import Price, price
from inference_recommender.sizing import candidate, cheapest, cost_per_million_usd, fleet
from workloads import Candidate, LatencyObjective, Sizing

OBJECTIVE = LatencyObjective(
    percentile="P99", model_latency_ms=50, peak_invocations_per_minute=30_000, trough_invocations_per_minute=3_000
)
SIZING = Sizing(headroom=0.2, safety_factor=0.5)
KNOWN = Price(usd_per_hour=1.408, reason="listed")
UNKNOWN = Price(usd_per_hour=None, reason="not listed")


def _measured(rate: float | None = 13_000, latency: float | None = 42.0, **fields: object) -> Measurement:
    return Measurement.model_validate(
        {
            "instance_type": "ml.g5.xlarge",
            "endpoint_name": "e",
            "max_invocations_per_minute": rate,
            "model_latency_ms": latency,
            **fields,
        }
    )


def test_the_fleet_by_hand() -> None:
    found = fleet(13_000, OBJECTIVE, SIZING)
    assert found.instance_count == math.ceil(36_000 / 13_000) == 3
    assert found.autoscaling.target_invocations_per_instance == 6_500
    assert found.autoscaling.max_capacity == math.ceil(36_000 / 6_500) == 6
    assert found.autoscaling.min_capacity == math.ceil(3_600 / 6_500) == 1


def test_an_exact_division_needs_no_extra_instance() -> None:
    exact = OBJECTIVE.model_copy(update={"peak_invocations_per_minute": 30_000})
    assert fleet(36_000, exact, SIZING).instance_count == 1
    assert fleet(12_000, exact, SIZING).instance_count == 3


def test_the_target_is_max_rps_times_safety_factor_times_60() -> None:
    max_rps = 200.0
    found = fleet(max_rps * 60, OBJECTIVE, SIZING).autoscaling
    assert found.target_invocations_per_instance == max_rps * 0.5 * 60


def test_cost_per_million_by_hand() -> None:
    # AWS's g4dn.xlarge at 0.7364 USD/h and 30,000 invocations a minute: 1.8 million an hour.
    assert cost_per_million_usd(0.7364, 30_000) == pytest.approx(0.7364 / 1.8)


@given(
    rate=st.integers(1, 10**6),
    peak=st.integers(1, 10**7),
    trough_share=st.floats(0, 1),
    headroom=st.integers(0, 200),
    safety=st.integers(1, 100),
    least=st.integers(1, 5),
)
def test_a_fleet_bears_its_peak_and_scaling_reaches_it(
    rate: int, peak: int, trough_share: float, headroom: int, safety: int, least: int
) -> None:
    objective = OBJECTIVE.model_copy(
        update={"peak_invocations_per_minute": peak, "trough_invocations_per_minute": int(peak * trough_share)}
    )
    found = fleet(rate, objective, Sizing(headroom=headroom / 100, safety_factor=safety / 100, min_instances=least))
    needed = Fraction(peak) * (100 + headroom) / 100
    bare = math.ceil(needed / rate)
    assert found.instance_count == max(bare, least)
    scaling = found.autoscaling
    assert least <= scaling.min_capacity <= scaling.max_capacity
    assert found.instance_count <= scaling.max_capacity
    assert scaling.max_capacity * Fraction(rate) * safety / 100 >= needed * Fraction(999_999, 1_000_000)


def test_a_candidate_that_keeps_the_objective_is_sized_and_priced() -> None:
    found = candidate(_measured(), OBJECTIVE, SIZING, KNOWN, 30_000)
    assert found.meets_objective
    assert found.reason == "Keeps P99 model latency ≤ 50 ms: 42 ms at 13,000 invocations/min."
    assert found.instance_count == 3
    assert found.cost_per_hour_usd == pytest.approx(3 * 1.408)
    assert found.cost_per_million_invocations_usd == pytest.approx(3 * 1.408 / 1.8)


def test_a_candidate_that_misses_the_objective_is_not_sized() -> None:
    found = candidate(_measured(latency=50.5), OBJECTIVE, SIZING, KNOWN, 30_000)
    assert (found.meets_objective, found.instance_count, found.autoscaling) == (False, None, None)
    assert found.reason == "Misses P99 model latency ≤ 50 ms: 50.5 ms at 13,000 invocations/min."
    assert found.cost_per_hour_usd is None


@pytest.mark.parametrize("gap", [{"rate": None}, {"rate": 0.0}, {"latency": None}])
def test_missing_metrics_are_no_capacity(gap: dict[str, float | None]) -> None:
    found = candidate(_measured(**gap), OBJECTIVE, SIZING, KNOWN, 30_000)
    assert (found.meets_objective, found.reason) == (False, "The job reported no capacity for it.")


def test_a_capacity_at_the_jobs_own_limit_is_said_to_be_a_lower_bound() -> None:
    found = candidate(_measured(rate=30_400), OBJECTIVE, SIZING, KNOWN, 30_000)
    assert found.reason == (
        "Keeps P99 model latency ≤ 50 ms: 42 ms at 30,400 invocations/min. "
        "The job stopped at its limit of 30,000: an instance may bear more."
    )


def test_a_failed_test_keeps_its_reason() -> None:
    found = candidate(_measured(failure_reason="Out of memory."), OBJECTIVE, SIZING, KNOWN, 30_000)
    assert (found.meets_objective, found.reason) == (False, "Out of memory.")


def test_an_unknown_price_is_none_with_the_reason_and_does_not_stop_sizing() -> None:
    found = candidate(_measured(), OBJECTIVE, SIZING, UNKNOWN, 30_000)
    assert found.instance_count == 3
    assert (found.cost_per_hour_usd, found.cost_per_million_invocations_usd) == (None, None)
    assert found.cost_reason == "not listed"


def _candidate(cost: float | None, count: int, meets: bool = True) -> Candidate:
    return Candidate(
        instance_type="ml.g5.xlarge", instance_count=count, cost_per_hour_usd=cost, meets_objective=meets, reason="r"
    )


def test_the_cheapest_that_meets_the_objective_is_recommended_and_unknown_costs_come_last() -> None:
    cheap, dear, unknown = _candidate(2, 4), _candidate(3, 1), _candidate(None, 1)
    assert cheapest([unknown, dear, cheap, _candidate(1, 1, meets=False)]) is cheap
    assert cheapest([_candidate(None, 3), unknown]) is unknown
    assert cheapest([_candidate(1, 1, meets=False)]) is None


def test_a_price_is_the_jobs_then_the_catalogues_then_unknown() -> None:
    assert price("ml.g5.xlarge", "us-east-1", 1.5) == Price(usd_per_hour=1.5, reason="Reported by the job.")
    assert price("ml.g5.xlarge", "us-east-1", None) == Price(
        usd_per_hour=1.408, reason="Amazon SageMaker pricing, Hosting, on demand, us-east-1, 2026-11-20."
    )
    assert price("ml.c5.xlarge", "us-east-1", None) == Price(
        usd_per_hour=None,
        reason="The job reported no price, and prices.json has none for ml.c5.xlarge in us-east-1.",
    )
