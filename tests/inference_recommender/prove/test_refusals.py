"""A proof that a target cannot give is refused before anything is sent."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from inference_recommender.prove.refusals import refuse_another, refuse_beyond_the_lease, refuse_less_than_the_fleet
from tests.inference_recommender.prove.recommended import TARGET, a_candidate, a_recommendation
from workloads import UsageError

FILE = Path("workloads/spellcheck/recommendation.json")
NOW = datetime(2026, 11, 23, 3, 0, tzinfo=UTC)


def test_another_archive_than_was_measured_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        refuse_another(replace(TARGET, archive_sha256="b" * 64), a_recommendation(), a_candidate(), FILE)
    assert str(caught.value) == (
        "workloads/spellcheck/recommendation.json: archive_sha256: was measured on the artifact aaaaaaaaaaaa…, but "
        "endpoint-1 serves bbbbbbbbbbbb…. Deploy the artifact that was measured, or measure the one that serves."
    )


def test_another_instance_type_than_is_recommended_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        refuse_another(replace(TARGET, instance_type="ml.g5.xlarge"), a_recommendation(), a_candidate(), FILE)
    assert str(caught.value) == (
        "workloads/spellcheck/recommendation.json: recommended.instance_type: is ml.c5.xlarge, but endpoint-1 runs on "
        "ml.g5.xlarge. Prove it on an endpoint of ml.c5.xlarge."
    )


def test_what_is_not_known_of_a_server_is_not_refused() -> None:
    unknown = replace(TARGET, archive_sha256=None, instance_type="unknown")
    refuse_another(unknown, a_recommendation(), a_candidate(), FILE)


def test_an_endpoint_too_small_for_the_whole_peak_is_refused() -> None:
    refuse_less_than_the_fleet(replace(TARGET, instances=10), a_candidate(10), 12_000)
    with pytest.raises(UsageError) as caught:
        refuse_less_than_the_fleet(replace(TARGET, instances=4), a_candidate(10), 12_000)
    assert str(caught.value) == (
        "--fleet: endpoint-1 has 4 instances, and 12,000 invocations/min are for the 10 that are recommended. Deploy "
        "the fleet, or leave out --fleet: each instance that is there then gets its share."
    )
    with pytest.raises(UsageError) as caught:
        refuse_less_than_the_fleet(replace(TARGET, stands_in=True), a_candidate(10), 12_000)
    assert str(caught.value) == (
        "--fleet: endpoint-1 has one server for all of its instances, as every endpoint on this machine has, and "
        "12,000 invocations/min are for the 10 that are recommended. Deploy the fleet, or leave out --fleet: each "
        "instance that is there then gets its share."
    )


def test_an_endpoint_that_may_be_swept_before_the_proof_has_ended_is_refused() -> None:
    leased = replace(TARGET, name="SpellcheckStack", expires_at=NOW + timedelta(minutes=10))
    refuse_beyond_the_lease(leased, 600, NOW)
    refuse_beyond_the_lease(TARGET, 1e9, NOW)
    with pytest.raises(UsageError) as caught:
        refuse_beyond_the_lease(leased, 726, NOW)
    assert str(caught.value) == (
        "--max-duration-s: the proof may take 726 s, but SpellcheckStack expires in 600 s, at "
        "2026-11-23T03:10:00+00:00. Give it less, or prove it on an endpoint that stays."
    )
