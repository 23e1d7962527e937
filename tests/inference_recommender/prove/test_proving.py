"""A proof under both loads: the verdict, which scenario decides, and what it says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inference_recommender.capacity.search import Probe, Seen
from inference_recommender.prove.proving import Origin, Proving
from tests.inference_recommender.prove.recommended import TARGET, a_candidate, a_recommendation, bearing
from workloads import Candidate, Proof, Sizing, UsageError
from workloads.document import Document

ORIGIN = Origin(machine="a laptop", measured_at="2026-11-23T03:00:00+00:00", run="runs/spellcheck-proof-1")


def _proving(probe: Probe, chosen: Candidate | None = None, **changes: Any) -> Proving:
    members: dict[str, Any] = {
        "recommendation": a_recommendation(chosen),
        "target": TARGET,
        "probe": probe,
        "longest_s": 240.0,
        "sizing": Sizing(),
    }
    return Proving(**{**members, **changes})


def _proof(probe: Probe, chosen: Candidate | None = None, **changes: Any) -> Proof:
    proving = _proving(probe, chosen, **changes)
    proving.run()
    return proving.proof(ORIGIN)


def test_a_true_recommendation_is_kept_under_both_loads() -> None:
    proof = _proof(bearing(1800))
    assert (proof.verdict, proof.scenario, proof.invocations_per_minute, proof.limit_ms) == ("kept", "peak", 1200, 50)
    assert [(each.name, each.verdict, each.asked) for each in proof.scenarios] == [
        ("peak", "kept", True),
        ("instance-lost", "kept", False),
    ]
    low, high = proof.latency_interval_ms
    assert low is not None
    assert proof.latency_ms is not None
    assert high is not None
    assert low < proof.latency_ms < high <= 50
    assert proof.reason == (
        f"P90 keeps 50 ms at 1,200 invocations/min: {proof.latency_ms:.4g} ms (95 % interval {low:.4g} to {high:.4g})."
    )


def test_a_miss_at_the_peak_decides() -> None:
    proof = _proof(bearing(900))
    assert (proof.verdict, proof.scenario) == ("missed", "peak")
    assert [each.verdict for each in proof.scenarios] == ["missed", "missed"]
    assert proof.reason.startswith("P90 misses 50 ms at 1,200 invocations/min: ")


def test_a_loss_that_the_recommendation_says_is_borne_shows_that_it_is_not_true() -> None:
    """4 instances get 3,000 a minute each and 3 of them 4,000; the service bears 3,700, and 4,500 were recommended."""
    proof = _proof(bearing(3700), a_candidate(4, 4500.0), longest_s=1200.0)
    assert (proof.verdict, proof.scenario) == ("missed", "instance-lost")
    assert proof.scenarios[0].verdict == "kept"
    assert (
        "at 4,000 invocations/min when an instance is lost, a rate that the recommendation says an instance bears: "
        in proof.reason
    )


def test_a_loss_that_nobody_asked_to_survive_and_nothing_claims_decides_nothing() -> None:
    proof = _proof(bearing(3700), a_candidate(4, 3600.0), longest_s=600.0)
    assert (proof.verdict, proof.scenario) == ("kept", "peak")
    assert [each.verdict for each in proof.scenarios] == ["kept", "missed"]


def test_a_loss_that_sizing_asks_for_decides() -> None:
    sizing = Sizing(spare_instances=1)
    assert _proof(bearing(2000), sizing=sizing).scenario == "instance-lost"
    missed = _proof(bearing(3700), a_candidate(4, 3600.0), sizing=sizing, longest_s=600.0)
    assert (missed.verdict, missed.scenario) == ("missed", "instance-lost")
    assert missed.reason.startswith("P90 misses 50 ms at 4,000 invocations/min when an instance is lost: ")


def test_a_fleet_of_one_is_proven_at_its_peak() -> None:
    proof = _proof(bearing(20_000), a_candidate(1, 20_000.0))
    assert (proof.verdict, proof.scenario) == ("kept", "peak")
    assert (proof.scenarios[1].verdict, proof.scenarios[1].invocations_per_minute) == ("missed", None)
    asked = _proof(bearing(20_000), a_candidate(1, 20_000.0), sizing=Sizing(spare_instances=1))
    assert (asked.verdict, asked.invocations_per_minute, asked.reason) == (
        "missed",
        None,
        "No instance is left when an instance is lost.",
    )


def test_several_instances_get_their_shares_together() -> None:
    proof = _proof(bearing(5400), target=replace(TARGET, instances=3))
    assert (proof.invocations_per_minute, proof.instances) == (3600, 3)


def test_a_rate_at_the_capacity_is_unclear() -> None:
    proof = _proof(bearing(1200), a_candidate(10, 1250.0), longest_s=120.0)
    assert proof.verdict == "unclear"
    assert proof.reason.startswith("P90 is neither shown to keep 50 ms nor to miss it at 1,200 invocations/min: ")


def _refusing(rate_per_minute: float, duration_s: float) -> Seen:
    intended = np.linspace(0, duration_s, int(rate_per_minute / 60 * duration_s))
    return Seen(duration_s=duration_s, intended_s=intended, latencies_ms=np.full(len(intended), np.inf))


def test_a_service_that_fails_every_request_misses_and_the_proof_is_plain_json() -> None:
    proof = _proof(_refusing)
    assert (proof.verdict, proof.latency_ms, proof.latency_interval_ms) == ("missed", None, (None, None))
    assert proof.reason.endswith(": 540 of 540 requests failed.")
    assert isinstance(proof, Document)
    assert Proof.model_validate_json(proof.model_dump_json()) == proof


def test_a_proof_that_was_interrupted_says_what_it_knows() -> None:
    calls = [0]
    answers = bearing(1800)

    def interrupted(rate_per_minute: float, duration_s: float) -> Seen:
        calls[0] += 1
        if calls[0] > 2:
            raise KeyboardInterrupt
        return answers(rate_per_minute, duration_s)

    proving = _proving(interrupted)
    with pytest.raises(KeyboardInterrupt):
        proving.run()
    assert [each.verdict for each in proving.proof(ORIGIN).scenarios] == ["kept", "unclear"]
    assert _proving(answers).proof(ORIGIN).reason == (
        "P90 at 1,200 invocations/min is not known: the proof ended before its first look."
    )


def test_too_short_a_time_for_the_percentile_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        _proving(bearing(1800), longest_s=3.0)
    assert str(caught.value) == (
        "--max-duration-s: 3 s are too short: P90 at 1,200 invocations/min needs at least 4 s for the two loads."
    )
