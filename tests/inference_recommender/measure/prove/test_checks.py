"""Checks before a proof sends any load."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from inference_recommender.measure.prove.checks import check_artifact, check_endpoint_lifetime, check_fleet
from inference_recommender.measure.system import SystemUnderTest
from tests.builders import a_candidate, a_recommendation, a_system
from workloads import UsageError

FILE = Path("workloads/spellcheck/recommendation.json")
NOW = datetime(2026, 11, 23, 3, 0, tzinfo=UTC)


def artifact(system: SystemUnderTest) -> None:
    check_artifact(system, a_recommendation(), a_candidate(), FILE)


def fleet(system: SystemUnderTest) -> None:
    check_fleet(system, a_candidate(10), 12_000)


def lifetime(system: SystemUnderTest) -> None:
    check_endpoint_lifetime(system, 726, NOW)


def test_a_matching_or_unknown_system_passes() -> None:
    artifact(a_system(archive_sha256=None, instance_type="unknown"))
    fleet(a_system(instances=10))
    lifetime(a_system())
    lifetime(a_system(expires_at=NOW + timedelta(seconds=726)))


@pytest.mark.parametrize(
    ("check", "system", "problem"),
    [
        (
            artifact,
            a_system(archive_sha256="b" * 64),
            f"{FILE}: archive_sha256: aaaaaaaaaaaa… was measured, but endpoint-1 serves bbbbbbbbbbbb…. Deploy the "
            "measured archive, or measure the deployed one.",
        ),
        (
            artifact,
            a_system(instance_type="ml.g5.xlarge"),
            f"{FILE}: recommended.instance_type: is ml.c5.xlarge, but endpoint-1 runs on ml.g5.xlarge. Prove it on an "
            "endpoint of ml.c5.xlarge.",
        ),
        (
            fleet,
            a_system(instances=4),
            "--fleet: endpoint-1 has 4 instances. 12,000 invocations/min need the 10 recommended ones. Deploy the "
            "fleet, or omit --fleet: each instance then gets its share.",
        ),
        (
            fleet,
            a_system(stands_in=True),
            "--fleet: endpoint-1 has one server for all of its instances, as every endpoint of the local account does. "
            "12,000 invocations/min need the 10 recommended ones. Deploy the fleet, or omit --fleet: each instance "
            "then gets its share.",
        ),
        (
            lifetime,
            a_system(expires_at=NOW + timedelta(minutes=10)),
            "--max-duration-s: the proof may take 726 s, but endpoint-1 expires in 600 s, at "
            "2026-11-23T03:10:00+00:00. Use a shorter time or a permanent endpoint.",
        ),
    ],
)
def test_a_proof_that_cannot_be_given_is_rejected(
    check: Callable[[SystemUnderTest], None], system: SystemUnderTest, problem: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check(system)
    assert str(caught.value) == problem
