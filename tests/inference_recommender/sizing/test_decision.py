"""Measurements are judged, sized and priced, and the cheapest candidate is recommended."""

import re
from typing import Any

import pytest

from inference_recommender.capacity.flow_equivalent import BURST_ERROR
from inference_recommender.measurement import Measurement
from inference_recommender.sizing.decision import candidate, cheapest, why_inconclusive
from inference_recommender.sizing.fleet import Demand, cost_per_million_usd
from inference_recommender.sizing.prices import Price, job_price
from inference_recommender.sizing.verdict import capacity_by_cv, needs_search
from tests.builders import a_candidate
from tests.inference_recommender.sizing.builders import OF_USERS, measurement, searched, watched
from workloads import ArrivalProcess, Candidate, LatencyObjective, Sizing

OBJECTIVE = LatencyObjective(
    percentile="P99", model_latency_ms=50, peak_invocations_per_minute=30_000, trough_invocations_per_minute=3_000
)
DEMAND = Demand.of(OBJECTIVE)
NO_LIMIT = Demand(peak_invocations_per_minute=30_000)
NO_PERCENTILE = Demand(peak_invocations_per_minute=30_000, model_latency_ms=40)
SIZING = Sizing(headroom=0.2, safety_factor=0.5)
KNOWN = Price(usd_per_hour=1.408, reason="listed")
SERIES = watched((1, 6_000, 10), (2, 10_000, 14), (3, 12_800, 18), (4, 13_100, 22))
UNVERIFIED = "Unverified: no evidence that it meets P99 model latency ≤ 50 ms. "
NO_P99 = (
    UNVERIFIED + "CloudWatch has no P99 of ModelLatency, and AWS documents no percentile for the job's own figures, "
)
UNFINISHED = {"invocations_per_minute": None, "percentile": "P99", "limit_ms": 50, "reason": "its time was over"}


def judged(measured: Measurement, demand: Demand = DEMAND, limit: int | None = None) -> Candidate:
    return candidate(measured, demand, SIZING, KNOWN, limit)


def unfinished(**fields: Any) -> Measurement:
    """Returns a search that ran out of time after an estimate of some 11,000 a minute."""
    return measurement(series=SERIES, open_loop={**UNFINISHED, **fields})


def probe(rate: float, latency_ms: float | None) -> dict[str, Any]:
    late = 0.0 if latency_ms is not None and latency_ms <= 50 else 0.5
    return {"invocations_per_minute": rate, "duration_s": 5.0, "latency_ms": latency_ms, "late_share": late}


@pytest.mark.parametrize(
    ("measured", "demand", "outcome", "reason"),
    [
        (
            searched(),
            DEMAND,
            (True, True, "open-loop", 3),
            "Meets P99 model latency ≤ 50 ms at 13,000 invocations/min, by an open-loop search. The closed-loop test "
            "reached 18,000.",
        ),
        (
            searched(0, reason="no rate keeps the limit"),
            DEMAND,
            (False, True, "closed-loop", 2),
            f"Misses P99 model latency ≤ 50 ms with open-loop arrivals: no rate keeps the limit. {OF_USERS}",
        ),
        (
            searched(percentile="P95"),
            DEMAND,
            (False, False, "open-loop", 3),
            UNVERIFIED + "The search for its capacity of 13,000 invocations/min had the limit P95 ≤ 50 ms.",
        ),
        (
            unfinished(at_least=14_000, interval=(14_000, 20_000)),
            DEMAND,
            (True, True, "open-loop", 3),
            "Meets P99 model latency ≤ 50 ms at 14,000 invocations/min or more. This is a lower bound, because the "
            "open-loop search ended early: its time was over. The closed-loop test reached 13,000.",
        ),
        (
            measurement(latency=42.0, percentile="P99"),
            DEMAND,
            (True, True, "closed-loop", 3),
            f"Meets P99 model latency ≤ 50 ms: 42 ms at 13,000 invocations/min. {OF_USERS}",
        ),
        (
            measurement(latency=50.5, percentile="P99"),
            DEMAND,
            (False, True, "closed-loop", 3),
            f"Misses P99 model latency ≤ 50 ms: 50.5 ms at 13,000 invocations/min. {OF_USERS}",
        ),
        (
            measurement(latency=42.0),
            DEMAND,
            (False, False, "closed-loop", 3),
            f"{NO_P99}42 ms at 13,000 invocations/min. {OF_USERS}",
        ),
        (
            measurement(latency=None, series=watched((1, 9_000, None), (2, 13_000, None))),
            DEMAND,
            (False, False, "closed-loop", 3),
            f"{NO_P99}13,000 invocations/min. {OF_USERS}",
        ),
        (
            measurement(),
            NO_PERCENTILE,
            (False, True, "closed-loop", 3),
            f"Misses model latency ≤ 40 ms: 42 ms at 13,000 invocations/min, of undocumented percentile. {OF_USERS}",
        ),
        (
            measurement(),
            NO_LIMIT,
            (True, True, "closed-loop", 3),
            f"Latency is not judged, because there is no objective: 42 ms at 13,000 invocations/min. {OF_USERS}",
        ),
        (measurement(rate=None), DEMAND, (False, True, "closed-loop", None), "The job reported no capacity."),
        (
            measurement(rate=1e-320),
            DEMAND,
            (False, True, "closed-loop", None),
            "The job reported 9.99989e-321 invocations/min, which is no load.",
        ),
        (measurement(failure_reason="Out of memory."), DEMAND, (False, True, "closed-loop", None), "Out of memory."),
    ],
)
def test_a_measurement_is_judged_and_sized(
    measured: Measurement, demand: Demand, outcome: tuple[bool, bool, str, int | None], reason: str
) -> None:
    found = judged(measured, demand)
    assert found.reason == reason
    assert (found.meets_objective, found.verified, found.capacity_basis, found.instance_count) == outcome
    assert (cheapest([found]) is found) == found.meets_objective


def test_costs_follow_from_the_count_and_the_peak() -> None:
    found = judged(searched(interval=(12_000, 14_000)))
    assert (found.max_invocations_interval, found.closed_loop_invocations_per_minute) == ((12_000, 14_000), 18_000)
    assert found.cost_per_hour_usd == pytest.approx(3 * 1.408)
    assert found.cost_per_million_invocations_usd == pytest.approx(3 * 1.408 / 1.8)
    # AWS's g4dn.xlarge at 0.7364 USD/h and 30,000 invocations a minute: 1.8 million an hour.
    assert cost_per_million_usd(0.7364, 30_000) == pytest.approx(0.7364 / 1.8)


def test_a_job_is_judged_by_an_estimate_below_its_closed_loop_rate() -> None:
    found = judged(measurement(latency=1.0, series=SERIES))
    rate = found.max_invocations_per_minute or 0
    assert found.reason == (
        f"Estimate: meets P99 model latency ≤ 50 ms up to {rate:,.0f} invocations/min with open-loop arrivals. The "
        "closed-loop test reached 13,000. Run again with --search to measure it."
    )
    assert (found.meets_objective, found.capacity_basis, found.objective_latency_ms) == (True, "estimate", None)
    assert 6_000 < rate < 12_800


def test_a_service_that_is_too_slow_for_one_user_misses_the_objective() -> None:
    found = judged(measurement(series=watched((1, 6_000, 60), (2, 9_000, 90))))
    assert found.reason == (
        f"Misses P99 model latency ≤ 50 ms: a single request takes {found.objective_latency_ms:.4g} ms in the "
        f"closed-loop test. {OF_USERS}"
    )
    assert found.objective_latency_ms == pytest.approx(60, rel=0.01)
    assert (found.meets_objective, found.instance_count) == (False, 3)


def test_an_estimate_of_a_fleet_is_divided_by_its_instances() -> None:
    series = watched((1, 12_000, 10), (2, 20_000, 14), (3, 26_000, 18))
    one, two = (judged(measurement(series=series, instance_count=count)) for count in (1, 2))
    assert one.max_invocations_per_minute == pytest.approx(2 * (two.max_invocations_per_minute or 0))


@pytest.mark.parametrize(
    ("fields", "figure"),
    [
        (
            {"probes": (probe(573, 85.0), probe(160, 205.0))},
            "P99 was 205 ms (limit 50 ms) in an open-loop probe at 160",
        ),
        ({"probes": (probe(573, None),)}, "too many requests had no answer in an open-loop probe at 573"),
        ({"interval": (900, 1_100)}, "the open-loop search found 900 to 1,100 (95 % interval)"),
    ],
)
def test_an_estimate_that_open_probes_contradict_is_inconclusive(fields: dict[str, Any], figure: str) -> None:
    measured = unfinished(**fields)
    found = judged(measured)
    assert (found.meets_objective, found.verified) == (False, False)
    assert found.reason.startswith("Inconclusive: the estimate is ")
    assert figure in found.reason
    assert figure in (why_inconclusive([measured], OBJECTIVE) or "")
    assert why_inconclusive([measured, measurement(series=SERIES)], OBJECTIVE) is None


@pytest.mark.parametrize("probes", [(), (probe(573, 85.0), probe(9_000, 30.0)), (probe(40_000, 300.0),)])
def test_an_estimate_that_probes_do_not_contradict_decides(probes: tuple[dict[str, Any], ...]) -> None:
    found = judged(unfinished(probes=probes))
    assert (found.meets_objective, found.capacity_basis) == (True, "estimate")
    assert " The open-loop search gave no capacity: its time was over." in found.reason


def test_a_recommendation_has_the_capacity_for_its_arrivals_and_for_poisson_ones() -> None:
    bursty = OBJECTIVE.model_copy(update={"arrivals": ArrivalProcess(process="gamma", cv=2.0)})
    found, poisson = (judged(measurement(series=SERIES), Demand.of(each)) for each in (bursty, OBJECTIVE))
    assert found.poisson_invocations_per_minute == poisson.max_invocations_per_minute
    sized_for, of_poisson = found.max_invocations_per_minute or 0.0, poisson.max_invocations_per_minute or 0.0
    assert f"The test had no bursts, so the fleet is sized for {sized_for:,.0f}" in found.reason
    estimate = float(re.findall(r" up to ([\d,]+) ", found.reason)[0].replace(",", ""))
    assert sized_for == pytest.approx(estimate * (estimate / of_poisson) ** BURST_ERROR, rel=1e-3)
    assert sized_for < estimate < 0.9 * of_poisson
    low, high = found.max_invocations_interval or (0.0, 0.0)
    assert low < sized_for < high
    assert poisson.poisson_invocations_per_minute is None
    capacities = dict(capacity_by_cv(measurement(series=SERIES), OBJECTIVE))
    assert capacities[1.0] == pytest.approx(poisson.max_invocations_per_minute)
    assert capacities[2.0] == pytest.approx(found.max_invocations_per_minute)
    assert sorted(capacities.values(), reverse=True) == list(capacities.values())


def test_recorded_arrivals_are_searched_and_have_no_estimate() -> None:
    recorded = OBJECTIVE.model_copy(update={"arrivals": ArrivalProcess(process="replay", file="a.csv")})
    assert needs_search(measurement(series=SERIES), recorded) == "recorded arrivals have no estimate"
    assert judged(measurement(series=SERIES), Demand.of(recorded)).capacity_basis == "closed-loop"


def test_only_an_estimate_far_below_the_closed_loop_rate_needs_a_check() -> None:
    assert needs_search(measurement(series=SERIES), OBJECTIVE) is None
    assert needs_search(measurement(rate=40_000, series=SERIES), OBJECTIVE)
    assert needs_search(measurement(rate=40_000), OBJECTIVE) is None
    reason = judged(measurement(rate=40_000, series=SERIES)).reason
    assert "The closed-loop test reached 40,000. The estimate is only " in reason


def test_a_capacity_at_the_limit_of_the_job_is_a_lower_bound() -> None:
    at_the_limit = judged(measurement(rate=30_400), NO_LIMIT, 30_000)
    assert at_the_limit.reason.endswith(" The job stopped at its limit of 30,000: an instance may sustain more.")
    assert "stopped" not in judged(searched(31_000), DEMAND, 10_000).reason


def test_the_cheapest_that_meets_the_objective_is_recommended_and_unknown_costs_come_last() -> None:
    cheap, dear = a_candidate(4, cost_per_hour_usd=2), a_candidate(1, cost_per_hour_usd=3)
    unknown, missed = a_candidate(1), a_candidate(1, cost_per_hour_usd=1, meets_objective=False)
    assert cheapest([unknown, dear, cheap, missed]) is cheap
    assert cheapest([a_candidate(3), unknown]) is unknown
    assert cheapest([missed]) is None


@pytest.mark.parametrize(
    ("instance_type", "reported", "region", "usd", "reason"),
    [
        ("ml.g5.xlarge", 1.5, None, 1.5, "Reported by the job."),
        (
            "ml.g5.xlarge",
            None,
            "us-east-1",
            1.408,
            "Amazon SageMaker pricing, Hosting, on demand, us-east-1, 2026-11-20.",
        ),
        (
            "ml.trn1n.32xlarge",
            0.0,
            None,
            None,
            "The job reported no price, and prices.json has none for ml.trn1n.32xlarge in us-east-1.",
        ),
        (
            "ml.g5.xlarge",
            9.0,
            "sa-east-1",
            None,
            "The job's price is of us-east-1, and prices.json has none for ml.g5.xlarge in sa-east-1.",
        ),
    ],
)
def test_a_price_is_the_jobs_then_the_catalogues_then_unknown(
    instance_type: str, reported: float | None, region: str | None, usd: float | None, reason: str
) -> None:
    assert job_price(instance_type, reported, "us-east-1", region) == Price(usd_per_hour=usd, reason=reason)
