"""Checks before a proof sends any load."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from inference_recommender.measure.prove.checks import check_artifact, check_endpoint_lifetime, check_fleet
from tests.builders import a_candidate, a_recommendation, a_system
from workloads import UsageError

FILE = Path("workloads/spellcheck/recommendation.json")
NOW = datetime(2026, 11, 23, 3, 0, tzinfo=UTC)


def test_an_archive_that_was_not_measured_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        check_artifact(a_system(archive_sha256="b" * 64), a_recommendation(), a_candidate(), FILE)
    assert str(caught.value) == (
        "workloads/spellcheck/recommendation.json: archive_sha256: aaaaaaaaaaaa… was measured, but endpoint-1 serves "
        "bbbbbbbbbbbb…. Deploy the measured archive, or measure the deployed one."
    )


def test_an_instance_type_that_is_not_recommended_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        check_artifact(a_system(instance_type="ml.g5.xlarge"), a_recommendation(), a_candidate(), FILE)
    assert str(caught.value) == (
        "workloads/spellcheck/recommendation.json: recommended.instance_type: is ml.c5.xlarge, but endpoint-1 runs on "
        "ml.g5.xlarge. Prove it on an endpoint of ml.c5.xlarge."
    )


def test_a_server_of_unknown_archive_and_type_is_accepted() -> None:
    unknown = a_system(archive_sha256=None, instance_type="unknown")
    check_artifact(unknown, a_recommendation(), a_candidate(), FILE)


def test_an_endpoint_too_small_for_the_whole_peak_is_refused() -> None:
    check_fleet(a_system(instances=10), a_candidate(10), 12_000)
    with pytest.raises(UsageError) as caught:
        check_fleet(a_system(instances=4), a_candidate(10), 12_000)
    assert str(caught.value) == (
        "--fleet: endpoint-1 has 4 instances. 12,000 invocations/min need the 10 recommended ones. Deploy the fleet, "
        "or omit --fleet: each instance then gets its share."
    )
    with pytest.raises(UsageError) as caught:
        check_fleet(a_system(stands_in=True), a_candidate(10), 12_000)
    assert str(caught.value) == (
        "--fleet: endpoint-1 has one server for all of its instances, as every endpoint of the local account does. "
        "12,000 invocations/min need the 10 recommended ones. Deploy the fleet, or omit --fleet: each instance then "
        "gets its share."
    )


def test_an_endpoint_that_may_expire_before_the_proof_ends_is_refused() -> None:
    leased = a_system(name="SpellcheckStack", expires_at=NOW + timedelta(minutes=10))
    check_endpoint_lifetime(leased, 600, NOW)
    check_endpoint_lifetime(a_system(), 1e9, NOW)
    with pytest.raises(UsageError) as caught:
        check_endpoint_lifetime(leased, 726, NOW)
    assert str(caught.value) == (
        "--max-duration-s: the proof may take 726 s, but SpellcheckStack expires in 600 s, at "
        "2026-11-23T03:10:00+00:00. Use a shorter time or a permanent endpoint."
    )
