"""Measurements are judged, sized and priced, and the cheapest candidate is recommended."""

from typing import Any

import pytest

from inference_recommender.capacity.time_series import Series
from inference_recommender.measurement import Measurement
from inference_recommender.sizing.decision import candidate, cheapest, cost_per_million_usd, why_inconclusive
from inference_recommender.sizing.fleet import Demand
from inference_recommender.sizing.prices import Price, price
from inference_recommender.sizing.verdict import is_far_below_closed_loop
from workloads import Candidate, LatencyObjective, Sizing

OBJECTIVE = LatencyObjective(
    percentile="P99", model_latency_ms=50, peak_invocations_per_minute=30_000, trough_invocations_per_minute=3_000
)
DEMAND = Demand.of(OBJECTIVE)
SIZING = Sizing(headroom=0.2, safety_factor=0.5)
KNOWN = Price(usd_per_hour=1.408, reason="listed")
UNKNOWN = Price(usd_per_hour=None, reason="not listed")


def _measured(rate: float | None = 13_000, latency: float | None = 42.0, **fields: object) -> Measurement:
    """A job's figures, of no documented percentile and without a time series."""
    return Measurement.model_validate(
        {
            "instance_type": "ml.g5.xlarge",
            "endpoint_name": "e",
            "max_invocations_per_minute": rate,
            "model_latency_ms": latency,
            **fields,
        }
    )


def _searched(rate: float | None = 13_000, **fields: object) -> Measurement:
    """The same, with a search that found a rate of open arrivals."""
    found = {"invocations_per_minute": rate, "percentile": "P99", "limit_ms": 50, "latency_ms": 49.0, "reason": "why"}
    return _measured(18_000, open_loop={**found, **fields})


def test_cost_per_million_by_hand() -> None:
    # AWS's g4dn.xlarge at 0.7364 USD/h and 30,000 invocations a minute: 1.8 million an hour.
    assert cost_per_million_usd(0.7364, 30_000) == pytest.approx(0.7364 / 1.8)


def test_a_candidate_that_keeps_the_objective_is_sized_and_priced() -> None:
    judged = candidate(_searched(interval=(12_000, 14_000)), DEMAND, SIZING, KNOWN, 30_000)
    assert judged.meets_objective
    assert judged.reason == (
        "Meets P99 model latency ≤ 50 ms at 13,000 invocations/min, by an open-loop search. The closed-loop test "
        "reached 18,000."
    )
    assert (judged.capacity_basis, judged.max_invocations_interval) == ("open-loop", (12_000, 14_000))
    assert (judged.max_invocations_per_minute, judged.closed_loop_invocations_per_minute) == (13_000, 18_000)
    assert judged.instance_count == 3
    assert judged.cost_per_hour_usd == pytest.approx(3 * 1.408)
    assert judged.cost_per_million_invocations_usd == pytest.approx(3 * 1.408 / 1.8)


def test_one_probe_beyond_the_limit_at_the_rate_that_is_kept_is_told() -> None:
    judged = candidate(_searched(latency_ms=56.954), DEMAND, SIZING, KNOWN, 30_000)
    assert judged.meets_objective
    assert "The probe nearest to that rate had 56.95 ms; the probes around it decide together." in judged.reason


def test_a_candidate_that_misses_the_objective_is_sized_too_and_not_recommended() -> None:
    judged = candidate(_searched(0, reason="no rate keeps the limit"), DEMAND, SIZING, KNOWN, 30_000)
    assert judged.reason == (
        "Misses P99 model latency ≤ 50 ms with open-loop arrivals: no rate keeps the limit. The rate is of closed-loop "
        "users, who wait for their answers; callers who do not may need more instances."
    )
    assert (judged.meets_objective, judged.capacity_basis, judged.instance_count) == (False, "closed-loop", 2)
    assert judged.cost_per_hour_usd == pytest.approx(2 * 1.408)
    assert judged.autoscaling is not None
    assert cheapest([judged]) is None


@pytest.mark.parametrize("other", [{"percentile": "P95"}, {"limit_ms": 80}])
def test_a_search_within_another_limit_verifies_nothing(other: dict[str, Any]) -> None:
    judged = candidate(_searched(**other), DEMAND, SIZING, KNOWN, None)
    searched = {"percentile": "P99", "limit_ms": 50, **other}
    assert judged.reason == (
        "Unverified: nothing shows whether it keeps P99 model latency ≤ 50 ms. Its capacity, 13,000 invocations/min, "
        f"was searched for within {searched['percentile']} ≤ {searched['limit_ms']} ms."
    )
    assert (judged.meets_objective, judged.verified, judged.instance_count) == (False, False, 3)


def test_a_missing_capacity_is_unknown_and_not_sized() -> None:
    judged = candidate(_measured(rate=None), DEMAND, SIZING, KNOWN, 30_000)
    assert (judged.meets_objective, judged.instance_count) == (False, None)
    assert judged.reason == "The job reported no capacity for it."


@pytest.mark.parametrize("rate", [0.0, 1e-320])
def test_a_capacity_of_nothing_is_not_divided_by(rate: float) -> None:
    judged = candidate(_measured(rate=rate), DEMAND, SIZING, KNOWN, 30_000)
    assert (judged.meets_objective, judged.instance_count) == (False, None)
    assert judged.reason == f"The job reported {rate:g} invocations/min for it, which is no load."


def _watched(*minutes: tuple[float, float, float | None]) -> Series:
    """CloudWatch's minutes: users, invocations, P99 of ModelLatency; a point more at either end is left out."""
    users, invocations, latencies = zip(minutes[0], *minutes, minutes[-1], strict=True)
    return Series(
        period_s=60,
        seconds=tuple(60.0 * number for number in range(len(users))),
        users=users,
        invocations=invocations,
        errors=(0.0,) * len(users),
        latency_ms={"p50": (5.0,) * len(users), "p99": latencies},
        model_latency_ms={"p99": latencies},
    )


@pytest.mark.parametrize("latency", [42.0, 900.0, None])
@pytest.mark.parametrize("series", [None, _watched((1, 9_000, None), (2, 13_000, None))])
def test_a_jobs_own_latency_verifies_nothing_and_the_fleet_is_sized_all_the_same(
    latency: float | None, series: Series | None
) -> None:
    judged = candidate(_measured(latency=latency, series=series), DEMAND, SIZING, KNOWN, 30_000)
    own = "" if latency is None else f"{latency:g} ms at "
    assert judged.reason == (
        "Unverified: nothing shows whether it keeps P99 model latency ≤ 50 ms. There is no P99 of ModelLatency from "
        f"CloudWatch, and no percentile is documented for the job's own figures, {own}13,000 invocations/min. The rate "
        "is of closed-loop users, who wait for their answers; callers who do not may need more instances."
    )
    assert (judged.meets_objective, judged.verified, judged.objective_latency_ms) == (False, False, None)
    assert (judged.capacity_basis, judged.instance_count) == ("closed-loop", 3)
    assert cheapest([judged]) is None


def test_a_job_is_judged_by_an_estimate_from_cloudwatch_below_what_its_users_had() -> None:
    """Every load of the job keeps the limit. Its own latency, of whatever percentile, tells nothing."""
    series = _watched((1, 6_000, 10), (2, 10_000, 14), (3, 12_800, 18), (4, 13_100, 22))
    judged = candidate(_measured(latency=1.0, series=series), DEMAND, SIZING, KNOWN, None)
    rate = judged.max_invocations_per_minute or 0
    assert judged.reason == (
        f"Estimate: meets P99 model latency ≤ 50 ms up to {rate:,.0f} invocations/min with open-loop arrivals. The "
        "closed-loop test reached 13,000. Run again with --search to measure it."
    )
    assert (judged.meets_objective, judged.capacity_basis) == (True, "estimate")
    assert 6_000 < rate < 12_800
    assert judged.objective_latency_ms is None, "an estimate has no measured latency"


def test_a_search_that_found_nothing_leaves_the_estimate_to_decide() -> None:
    series = _watched((1, 6_000, 10), (2, 10_000, 14), (3, 12_800, 18))
    found = {"invocations_per_minute": None, "percentile": "P99", "limit_ms": 50, "reason": "its time was over"}
    judged = candidate(_measured(series=series, open_loop=found), DEMAND, SIZING, KNOWN, None)
    assert judged.capacity_basis == "estimate"
    assert " The open-loop search gave no capacity: its time was over." in judged.reason


SERIES = _watched((1, 6_000, 10), (2, 10_000, 14), (3, 12_800, 18), (4, 13_100, 22))


def _probe(rate: float, latency_ms: float | None) -> dict[str, Any]:
    late = 0.0 if latency_ms is not None and latency_ms <= 50 else 0.5
    return {"invocations_per_minute": rate, "duration_s": 5.0, "latency_ms": latency_ms, "late_share": late}


def _unfinished(**fields: Any) -> Measurement:
    """A search that ran out of time after an estimate of some 11,000 a minute."""
    found = {"invocations_per_minute": None, "percentile": "P99", "limit_ms": 50, "reason": "its time was over"}
    return _measured(series=SERIES, open_loop={**found, **fields})


@pytest.mark.parametrize(
    ("fields", "figure"),
    [
        (
            {"probes": (_probe(573, 85.0), _probe(160, 205.0))},
            "P99 was 205 ms (limit 50 ms) in an open-loop probe at 160",
        ),
        ({"probes": (_probe(573, None),)}, "too many requests had no answer in an open-loop probe at 573"),
        ({"interval": (900, 1_100)}, "the open-loop search found 900 to 1,100 (95 % interval)"),
    ],
)
def test_an_estimate_that_open_probes_contradict_is_inconclusive(fields: dict[str, Any], figure: str) -> None:
    measured = _unfinished(**fields)
    judged = candidate(measured, DEMAND, SIZING, KNOWN, None)
    assert (judged.meets_objective, judged.verified) == (False, False)
    assert judged.reason.startswith("Inconclusive: the estimate is ")
    assert figure in judged.reason
    assert figure in (why_inconclusive([measured], OBJECTIVE) or "")
    assert why_inconclusive([measured, _measured(series=SERIES)], OBJECTIVE) is None


@pytest.mark.parametrize("probes", [(), (_probe(573, 85.0), _probe(9_000, 30.0)), (_probe(40_000, 300.0),)])
def test_probes_that_agree_with_the_estimate_leave_it_to_decide(probes: tuple[dict[str, Any], ...]) -> None:
    judged = candidate(_unfinished(probes=probes), DEMAND, SIZING, KNOWN, None)
    assert (judged.meets_objective, judged.capacity_basis) == (True, "estimate")


def test_a_lower_bound_above_the_estimate_sizes_the_fleet() -> None:
    judged = candidate(_unfinished(at_least=14_000, interval=(14_000, 20_000)), DEMAND, SIZING, KNOWN, None)
    assert (judged.max_invocations_per_minute, judged.capacity_basis) == (14_000, "open-loop")
    assert judged.reason == (
        "Meets P99 model latency ≤ 50 ms at 14,000 invocations/min or more. This is a lower bound, because the "
        "open-loop search ended early: its time was over. The closed-loop test reached 13,000."
    )


def test_only_an_estimate_far_below_the_closed_loop_rate_needs_a_check() -> None:
    assert not is_far_below_closed_loop(_measured(series=SERIES), OBJECTIVE)
    assert is_far_below_closed_loop(_measured(rate=40_000, series=SERIES), OBJECTIVE)
    assert not is_far_below_closed_loop(_measured(rate=40_000), OBJECTIVE)
    judged = candidate(_measured(rate=40_000, series=SERIES), DEMAND, SIZING, KNOWN, None)
    assert "The closed-loop test reached 40,000. The estimate is only " in judged.reason


def test_a_service_that_is_too_slow_for_one_user_misses_the_objective() -> None:
    series = _watched((1, 6_000, 60), (2, 9_000, 90))
    judged = candidate(_measured(series=series), DEMAND, SIZING, KNOWN, None)
    assert judged.reason == (
        f"Misses P99 model latency ≤ 50 ms: one request alone takes {judged.objective_latency_ms:.4g} ms, by the "
        "test's records. The rate is of closed-loop users, who wait for their answers; callers who do not may need "
        "more instances."
    )
    assert judged.objective_latency_ms == pytest.approx(60, rel=0.01)
    assert (judged.meets_objective, judged.instance_count) == (False, 3)


def test_a_fleets_estimate_is_divided_by_its_instances() -> None:
    series = _watched((1, 12_000, 10), (2, 20_000, 14), (3, 26_000, 18))
    one, two = (
        candidate(_measured(series=series, instance_count=count), DEMAND, SIZING, KNOWN, None) for count in (1, 2)
    )
    assert one.max_invocations_per_minute == pytest.approx(2 * (two.max_invocations_per_minute or 0))


@pytest.mark.parametrize(("latency", "verb"), [(42.0, "Keeps"), (50.5, "Misses")])
def test_without_records_our_own_percentile_judges_and_the_rate_is_said_to_be_of_users(
    latency: float, verb: str
) -> None:
    judged = candidate(_measured(latency=latency, percentile="P99"), DEMAND, SIZING, KNOWN, None)
    assert judged.reason == (
        f"{verb} P99 model latency ≤ 50 ms: {latency:g} ms at 13,000 invocations/min. The rate is of closed-loop "
        "users, who wait for their answers; callers who do not may need more instances."
    )
    assert (judged.meets_objective, judged.capacity_basis) == (verb == "Keeps", "closed-loop")


def test_without_any_latency_a_limit_of_no_percentile_is_not_met() -> None:
    demand = Demand(peak_invocations_per_minute=30_000, model_latency_ms=40)
    judged = candidate(_measured(latency=None), demand, SIZING, KNOWN, None)
    assert judged.reason.startswith("The job reported no model latency for it, so nothing shows that it keeps 40 ms. ")
    assert not judged.meets_objective


@pytest.mark.parametrize(
    ("latency", "said"), [(42.0, "42 ms at 13,000 invocations/min"), (None, "13,000 invocations/min")]
)
def test_without_a_limit_latency_is_not_judged_and_the_load_is_sized(latency: float | None, said: str) -> None:
    judged = candidate(_measured(latency=latency), Demand(peak_invocations_per_minute=30_000), SIZING, KNOWN, None)
    assert (judged.meets_objective, judged.instance_count) == (True, 3)
    assert judged.reason == (
        f"Latency is not judged, for no objective was given: {said}. The rate is of closed-loop users, who wait for "
        "their answers; callers who do not may need more instances."
    )


def test_a_limit_without_a_percentile_is_named_without_one() -> None:
    demand = Demand(peak_invocations_per_minute=30_000, model_latency_ms=40)
    judged = candidate(_measured(), demand, SIZING, KNOWN, None)
    assert judged.reason == (
        "Misses model latency ≤ 40 ms: 42 ms at 13,000 invocations/min, by a figure of undocumented percentile. The "
        "rate is of closed-loop users, who wait for their answers; callers who do not may need more instances."
    )


def test_a_capacity_at_the_jobs_own_limit_is_said_to_be_a_lower_bound() -> None:
    judged = candidate(_measured(rate=30_400), Demand(peak_invocations_per_minute=30_000), SIZING, KNOWN, 30_000)
    assert judged.reason.endswith(" The job stopped at its limit of 30,000: an instance may sustain more.")
    searched = candidate(_searched(31_000), DEMAND, SIZING, KNOWN, 10_000)
    assert "stopped" not in searched.reason


def test_a_failed_test_keeps_its_reason() -> None:
    judged = candidate(_measured(failure_reason="Out of memory."), DEMAND, SIZING, KNOWN, 30_000)
    assert (judged.meets_objective, judged.reason) == (False, "Out of memory.")


def test_an_unknown_price_is_none_with_the_reason_and_does_not_stop_sizing() -> None:
    judged = candidate(_searched(), DEMAND, SIZING, UNKNOWN, 30_000)
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
    assert price("ml.trn1.32xlarge", "us-east-1", None) == Price(
        usd_per_hour=None,
        reason="The job reported no price, and prices.json has none for ml.trn1.32xlarge in us-east-1.",
    )
