"""A proof: its loads, its plan, its verdict, the scenario that decides, and the reason in words."""

from typing import Any

import numpy as np
import pytest

from inference_recommender.capacity.probe import ProbeRecords
from inference_recommender.capacity.search import SendProbe
from inference_recommender.measure.proving import Proving, default_duration_s, loads
from tests.builders import OBJECTIVE, a_candidate, a_recommendation, a_system, known, message_of
from tests.inference_recommender.measure.proof_service import bearing
from workloads import POISSON, ArrivalProcess, Candidate, Proof, Sizing, UsageError

ORIGIN = {"machine": "a laptop", "measured_at": "2026-11-23T03:00:00+00:00", "run": "runs/spellcheck-proof-1"}


def _proving(probe: SendProbe, chosen: Candidate | None = None, **changes: Any) -> Proving:
    members: dict[str, Any] = {
        "recommendation": a_recommendation(chosen),
        "system": a_system(),
        "probe": probe,
        "longest_s": 480.0,
        "sizing": Sizing(),
    }
    return Proving(**{**members, **changes})


def _proof(probe: SendProbe, chosen: Candidate | None = None, **changes: Any) -> Proof:
    proving = _proving(probe, chosen, **changes)
    proving.run()
    return proving.proof(**ORIGIN)


@pytest.mark.parametrize(
    ("count", "sizing", "name", "left"),
    [
        (10, Sizing(), "instance-lost", 9),
        (10, Sizing(spare_instances=2), "instance-lost", 8),
        (10, Sizing(availability_zones=3, spare_instances=1), "zone-lost", 6),
        (10, Sizing(availability_zones=2, spare_instances=6), "instance-lost", 4),
        (1, Sizing(), "instance-lost", 0),
    ],
)
def test_the_loss_follows_sizing(count: int, sizing: Sizing, name: str, left: int) -> None:
    peak, loss = loads(a_candidate(count), OBJECTIVE, sizing)
    assert (peak.name, peak.instances_left, peak.per_instance, peak.required) == ("peak", count, 12_000 / count, True)
    assert (loss.name, loss.instances_left, loss.required) == (name, left, sizing != Sizing())
    assert loss.per_instance == (pytest.approx(12_000 / left) if left else None)


@pytest.mark.parametrize(
    ("capacity", "changes", "within"),
    [(1404.0, {}, True), (1403.0, {}, False), (1334.0, {"max_invocations_interval": None}, True)],
)
def test_a_load_is_within_capacity_up_to_the_lower_end_of_the_interval(
    capacity: float, changes: dict[str, Any], within: bool
) -> None:
    """12,000/min on 9 instances are 1,333.3 each, which is 95 % of 1,403.5."""
    assert loads(a_candidate(10, capacity, **changes), OBJECTIVE, Sizing())[1].within_capacity is within


def test_a_true_recommendation_is_kept() -> None:
    proof = _proof(bearing(1800), a_candidate(10, 1450.0))
    assert (proof.verdict, proof.scenario, proof.invocations_per_minute, proof.limit_ms) == ("kept", "peak", 1200, 50)
    assert [(each.name, each.verdict, each.asked) for each in proof.scenarios] == [
        ("peak", "kept", True),
        ("instance-lost", "kept", False),
    ]
    low, high = proof.latency_interval_ms
    assert low is not None
    assert high is not None
    assert low < known(proof.latency_ms) < high <= 50
    peak = proof.scenarios[0]
    assert peak.late is not None
    assert peak.late < peak.requests * 0.1 == pytest.approx(peak.late_allowed, abs=1)
    assert proof.reason == (
        f"P90 {known(proof.latency_ms):.3g} ms at 1,200 invocations/min (limit 50 ms): {peak.late} of {peak.requests} "
        f"requests were late, {peak.late_allowed} allowed."
    )
    assert proof.not_tested == ()


def test_a_miss_at_the_peak_decides_without_a_second_load() -> None:
    proof = _proof(bearing(900))
    assert (proof.verdict, proof.scenario) == ("missed", "peak")
    assert [each.verdict for each in proof.scenarios] == ["missed"]
    assert proof.reason.startswith("P90 ")
    assert " at 1,200 invocations/min (limit 50 ms): " in proof.reason
    assert proof.not_tested == ("instance lost: not tested, because the peak load missed.",)


def test_a_miss_within_the_recommended_capacity_decides() -> None:
    """4 instances get 3,000/min each and 3 get 4,000/min. The capacity is 3,700/min, and 4,500/min was recommended."""
    proof = _proof(bearing(3700), a_candidate(4, 4500.0), longest_s=1200.0)
    assert (proof.verdict, proof.scenario) == ("missed", "instance-lost")
    assert proof.scenarios[0].verdict == "kept"
    assert " at 4,000 invocations/min without an instance (limit 50 ms): " in proof.reason
    assert proof.reason.endswith(" The recommended capacity is 4,275/min per instance or more.")


def test_a_loss_above_the_capacity_is_not_tested_unless_sizing_requires_it() -> None:
    proof = _proof(bearing(3700), a_candidate(4, 3600.0), longest_s=600.0)
    assert (proof.verdict, proof.scenario) == ("kept", "peak")
    assert [each.name for each in proof.scenarios] == ["peak"]
    assert proof.not_tested == (
        "instance lost: not tested, because sizing.spare_instances is 0; 4,000/min per instance would be above the "
        "capacity of 3,420/min.",
    )


def test_a_loss_that_sizing_requires_decides() -> None:
    sizing = Sizing(spare_instances=1)
    assert _proof(bearing(2000), sizing=sizing).scenario == "instance-lost"
    missed = _proof(bearing(3700), a_candidate(4, 3600.0), sizing=sizing, longest_s=600.0)
    assert (missed.verdict, missed.scenario) == ("missed", "instance-lost")
    assert " at 4,000 invocations/min without an instance (limit 50 ms): " in missed.reason


def test_a_fleet_of_one_is_proven_at_its_peak() -> None:
    proof = _proof(bearing(20_000), a_candidate(1, 20_000.0))
    assert (proof.verdict, proof.scenario) == ("kept", "peak")
    assert proof.not_tested == (
        "instance lost: not tested, because sizing.spare_instances is 0; no instance would be left.",
    )
    required = _proof(bearing(20_000), a_candidate(1, 20_000.0), sizing=Sizing(spare_instances=1))
    assert (required.verdict, required.invocations_per_minute, required.reason) == (
        "missed",
        None,
        "No instance is left without an instance.",
    )


def test_the_plan_has_the_seconds_of_each_load() -> None:
    both = _proving(bearing(1800), longest_s=120.0, sizing=Sizing(spare_instances=1))
    assert [(name, round(rate), round(shortest), round(longest)) for name, rate, shortest, longest in both.plan()] == [
        ("peak", 1200, 10, 60),
        ("instance-lost", 1333, 10, 110),
    ]
    assert [(name, longest) for name, *_, longest in _proving(bearing(1800), longest_s=120.0).plan()] == [("peak", 120)]


def _refusing(rate_per_minute: float, duration_s: float) -> ProbeRecords:
    intended = np.linspace(0, duration_s, int(rate_per_minute / 60 * duration_s))
    return ProbeRecords(duration_s=duration_s, intended_s=intended, latencies_ms=np.full(len(intended), np.inf))


def test_a_service_that_fails_every_request_misses_and_the_proof_is_plain_json() -> None:
    proof = _proof(_refusing)
    assert (proof.verdict, proof.latency_ms, proof.latency_interval_ms) == ("missed", None, (None, None))
    assert proof.reason == (
        "P90 unknown at 1,200 invocations/min (limit 50 ms): 180 of 180 requests were late (180 failed), 18 allowed."
    )
    assert Proof.model_validate_json(proof.model_dump_json()) == proof


def test_a_proof_that_ended_early_says_so() -> None:
    proof = _proving(bearing(1800)).proof(**ORIGIN)
    assert proof.reason == (
        "P90 is unknown at 1,200 invocations/min (limit 50 ms): the proof ended before its first result."
    )
    assert proof.not_tested == ("instance lost: not tested, because the proof ended first.",)


def test_too_short_a_time_for_the_percentile_is_refused() -> None:
    assert message_of(UsageError, _proving, bearing(1800), longest_s=2.0) == (
        "--max-duration-s: 2 s is too short for P90 at 1,200 invocations/min. Allowed: 3 s or more."
    )
    with pytest.raises(UsageError, match=r"Allowed: 5 s or more\."):
        _proving(bearing(1800), longest_s=3.0, sizing=Sizing(spare_instances=1))


def test_a_proof_takes_longer_by_default_if_arrivals_are_bursty() -> None:
    regular, bursty = (ArrivalProcess(process="gamma", cv=cv) for cv in (0.5, 2.0))
    assert default_duration_s(POISSON, 6000.0) == default_duration_s(regular, 6000.0) == 900
    assert 4 * 900 < default_duration_s(bursty, 6000.0) <= 6 * 900
