"""Measurements are judged, sized and priced, and the cheapest candidate is recommended."""

import pytest

from inference_recommender.capacity.time_series import Series
from inference_recommender.measurement import Measurement
from inference_recommender.sizing.decision import candidate, cheapest, cost_per_million_usd
from inference_recommender.sizing.fleet import Demand
from inference_recommender.sizing.prices import Price, price
from workloads import Candidate, LatencyObjective, Sizing

DEMAND = Demand.of(
    LatencyObjective(
        percentile="P99", model_latency_ms=50, peak_invocations_per_minute=30_000, trough_invocations_per_minute=3_000
    )
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
            "percentile": "P99",  # as our own records have it
            **fields,
        }
    )


def test_cost_per_million_by_hand() -> None:
    # AWS's g4dn.xlarge at 0.7364 USD/h and 30,000 invocations a minute: 1.8 million an hour.
    assert cost_per_million_usd(0.7364, 30_000) == pytest.approx(0.7364 / 1.8)


def test_a_candidate_that_keeps_the_objective_is_sized_and_priced() -> None:
    judged = candidate(_measured(), DEMAND, SIZING, KNOWN, 30_000)
    assert judged.meets_objective
    assert judged.reason == "Keeps P99 model latency ≤ 50 ms: 42 ms at 13,000 invocations/min."
    assert judged.instance_count == 3
    assert judged.cost_per_hour_usd == pytest.approx(3 * 1.408)
    assert judged.cost_per_million_invocations_usd == pytest.approx(3 * 1.408 / 1.8)


def test_a_candidate_that_misses_the_objective_is_not_sized() -> None:
    judged = candidate(_measured(latency=50.5), DEMAND, SIZING, KNOWN, 30_000)
    assert (judged.meets_objective, judged.instance_count, judged.autoscaling) == (False, None, None)
    assert judged.reason == "Misses P99 model latency ≤ 50 ms: 50.5 ms at 13,000 invocations/min."
    assert judged.cost_per_hour_usd is None


def test_a_missing_capacity_is_unknown_and_not_sized() -> None:
    judged = candidate(_measured(rate=None), DEMAND, SIZING, KNOWN, 30_000)
    assert (judged.meets_objective, judged.instance_count) == (False, None)
    assert judged.reason == "The job reported no capacity for it."


@pytest.mark.parametrize("rate", [0.0, 1e-320])
def test_a_capacity_of_nothing_is_not_divided_by(rate: float) -> None:
    judged = candidate(_measured(rate=rate), DEMAND, SIZING, KNOWN, 30_000)
    assert (judged.meets_objective, judged.instance_count) == (False, None)
    assert judged.reason == f"The job reported {rate:g} invocations/min for it: it bore no load."


def _of_a_job(series: Series | None = None, latency: float | None = 42.0, instances: int = 1) -> Measurement:
    """A job's figures, of no documented percentile."""
    return _measured(latency=latency, percentile=None, series=series, instance_count=instances)


def _watched(*minutes: tuple[float, float, float | None]) -> Series:
    """CloudWatch's minutes: users, invocations, P99 of ModelLatency; a point more at either end is left out."""
    users, invocations, latencies = zip(minutes[0], *minutes, minutes[-1], strict=True)
    return Series(
        period_s=60,
        seconds=tuple(60.0 * number for number in range(len(users))),
        users=users,
        invocations=invocations,
        errors=(0.0,) * len(users),
        latency_ms={"p50": (5.0,) * len(users)},
        model_latency_ms={"p99": latencies},
    )


@pytest.mark.parametrize("latency", [42.0, 900.0, None])
@pytest.mark.parametrize("series", [None, _watched((1, 9_000, None), (2, 13_000, None))])
def test_a_jobs_own_latency_verifies_nothing_and_the_fleet_is_sized_all_the_same(
    latency: float | None, series: Series | None
) -> None:
    judged = candidate(_of_a_job(series, latency=latency), DEMAND, SIZING, KNOWN, 30_000)
    own = "" if latency is None else f"{latency:g} ms at "
    assert judged.reason == (
        "Unverified: nothing shows whether it keeps P99 model latency ≤ 50 ms. There is no P99 of ModelLatency from "
        f"CloudWatch, and no percentile is documented for the job's own figures, {own}13,000 invocations/min."
    )
    assert (judged.meets_objective, judged.objective_latency_ms, judged.instance_count) == (False, None, 3)
    assert cheapest([judged]) is None


def test_cloudwatch_judges_at_the_load_where_the_capacity_is_and_not_over_the_whole_test() -> None:
    """The last load breaks the limit, and would break it for the whole test."""
    series = _watched((1, 6_000, 10), (2, 12_800, 40), (3, 13_100, 400))
    judged = candidate(_of_a_job(series, latency=1.0), DEMAND, SIZING, KNOWN, None)
    assert judged.reason == "Keeps P99 model latency ≤ 50 ms by CloudWatch: 40 ms at 13,000 invocations/min."
    assert (judged.meets_objective, judged.objective_latency_ms, judged.model_latency_ms) == (True, 40, 1)


def test_a_capacity_that_only_p95_keeps_is_not_taken() -> None:
    series = _watched((1, 6_000, 10), (2, 10_000, 40), (3, 13_000, 80))
    judged = candidate(_of_a_job(series), DEMAND, SIZING, KNOWN, None)
    assert judged.reason == (
        "Keeps P99 model latency ≤ 50 ms by CloudWatch: 40 ms at 10,000 invocations/min. "
        "The job's own 13,000 was not within it."
    )
    assert (judged.max_invocations_per_minute, judged.instance_count) == (10_000, 4)


def test_where_every_load_keeps_the_objective_the_jobs_rate_stands() -> None:
    judged = candidate(_of_a_job(_watched((1, 6_000, 10), (2, 9_000, 40))), DEMAND, SIZING, KNOWN, None)
    assert (judged.meets_objective, judged.max_invocations_per_minute) == (True, 13_000)


def test_a_service_that_no_load_leaves_within_the_limit_misses_it_by_cloudwatch() -> None:
    judged = candidate(_of_a_job(_watched((1, 6_000, 60), (2, 9_000, 90))), DEMAND, SIZING, KNOWN, None)
    assert judged.reason == (
        "Misses P99 model latency ≤ 50 ms by CloudWatch: 60 ms at 6,000 invocations/min, the lowest load that there "
        "was."
    )
    assert (judged.meets_objective, judged.instance_count) == (False, None)


def test_a_fleets_series_is_divided_by_its_instances() -> None:
    series = _watched((1, 12_000, 10), (2, 20_000, 40), (3, 26_000, 80))
    judged = candidate(_of_a_job(series, instances=2), DEMAND, SIZING, KNOWN, None)
    assert judged.max_invocations_per_minute == 10_000


def test_without_any_latency_a_limit_of_no_percentile_is_not_met() -> None:
    demand = Demand(peak_invocations_per_minute=30_000, model_latency_ms=40)
    judged = candidate(_of_a_job(latency=None), demand, SIZING, KNOWN, None)
    assert judged.reason == "The job reported no model latency for it, so nothing shows that it keeps 40 ms."
    assert not judged.meets_objective


@pytest.mark.parametrize(
    ("latency", "said"), [(42.0, "42 ms at 13,000 invocations/min"), (None, "13,000 invocations/min")]
)
def test_without_a_limit_latency_is_not_judged_and_the_load_is_sized(latency: float | None, said: str) -> None:
    judged = candidate(_measured(latency=latency), Demand(peak_invocations_per_minute=30_000), SIZING, KNOWN, None)
    assert (judged.meets_objective, judged.instance_count) == (True, 3)
    assert judged.reason == f"Latency is not judged, for no objective was given: {said}."


def test_a_limit_without_a_percentile_is_named_without_one() -> None:
    demand = Demand(peak_invocations_per_minute=30_000, model_latency_ms=40)
    judged = candidate(_measured(), demand, SIZING, KNOWN, None)
    assert judged.reason == (
        "Misses model latency ≤ 40 ms: 42 ms at 13,000 invocations/min, by a figure of undocumented percentile."
    )


def test_a_capacity_at_the_jobs_own_limit_is_said_to_be_a_lower_bound() -> None:
    judged = candidate(_measured(rate=30_400), DEMAND, SIZING, KNOWN, 30_000)
    assert judged.reason == (
        "Keeps P99 model latency ≤ 50 ms: 42 ms at 30,400 invocations/min. "
        "The job stopped at its limit of 30,000: an instance may bear more."
    )


def test_a_failed_test_keeps_its_reason() -> None:
    judged = candidate(_measured(failure_reason="Out of memory."), DEMAND, SIZING, KNOWN, 30_000)
    assert (judged.meets_objective, judged.reason) == (False, "Out of memory.")


def test_an_unknown_price_is_none_with_the_reason_and_does_not_stop_sizing() -> None:
    judged = candidate(_measured(), DEMAND, SIZING, UNKNOWN, 30_000)
    assert judged.instance_count == 3
    assert (judged.cost_per_hour_usd, judged.cost_per_million_invocations_usd) == (None, None)
    assert judged.cost_reason == "not listed"


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
    assert price("ml.inf1.xlarge", "us-east-1", None) == Price(
        usd_per_hour=None,
        reason="The job reported no price, and prices.json has none for ml.inf1.xlarge in us-east-1.",
    )
