"""Checks before a proof: recommendation, archive, instance type, enough instances, endpoint lifetime."""

from datetime import datetime, timedelta
from pathlib import Path

from inference_recommender.measure.system import UNKNOWN_TYPE, SystemUnderTest
from workloads import Candidate, Recommendation, UsageError, WorkloadFolder


def recommendation_to_prove(folder: WorkloadFolder, file: Path) -> tuple[Recommendation, Candidate]:
    """Returns the recommendation and its fleet. Raises `UsageError` or `InvalidDocument`."""
    name = folder.workload.name
    measure = f"Measure one: python -m inference_recommender run {name}"
    if not file.exists():
        raise UsageError(f"{file} does not exist, so there is no recommendation to prove. {measure}")
    recommendation = Recommendation.from_json(file)
    if recommendation.workload != name:
        raise UsageError(f"{file}: workload: got '{recommendation.workload}'. Allowed: '{name}'.")
    chosen = recommendation.recommended
    if chosen is None or chosen.instance_count is None:
        raise UsageError(f"{file}: recommended: is null, so there is no fleet to prove. {measure}")
    return recommendation, chosen


def check_artifact(system: SystemUnderTest, recommendation: Recommendation, chosen: Candidate, file: Path) -> None:
    """Raises `UsageError` if the target serves another archive or runs on another instance type."""
    measured, serves = recommendation.archive_sha256, system.archive_sha256
    if serves is not None and serves != measured:
        raise UsageError(
            f"{file}: archive_sha256: {measured[:12]}… was measured, but {system.name} serves {serves[:12]}…. Deploy "
            "the measured archive, or measure the deployed one."
        )
    if system.instance_type not in (UNKNOWN_TYPE, chosen.instance_type):
        raise UsageError(
            f"{file}: recommended.instance_type: is {chosen.instance_type}, but {system.name} runs on "
            f"{system.instance_type}. Prove it on an endpoint of {chosen.instance_type}."
        )


def check_fleet(system: SystemUnderTest, chosen: Candidate, peak_invocations_per_minute: float) -> None:
    """Raises `UsageError` if the target has fewer instances than the recommended fleet."""
    if system.instances >= (chosen.instance_count or 1):
        return
    has = f"{system.instances} instance{'s' if system.instances != 1 else ''}"
    if system.stands_in:
        has = "one server for all of its instances, as every endpoint of the local account does"
    raise UsageError(
        f"--fleet: {system.name} has {has}. {peak_invocations_per_minute:,} invocations/min need the "
        f"{chosen.instance_count} recommended ones. Deploy the fleet, or omit --fleet: each instance then gets its "
        "share."
    )


def check_endpoint_lifetime(system: SystemUnderTest, longest_s: float, now: datetime) -> None:
    """Raises `UsageError` if the target may expire before the proof ends."""
    if system.expires_at is None or now + timedelta(seconds=longest_s) <= system.expires_at:
        return
    left_s = max((system.expires_at - now).total_seconds(), 0)
    raise UsageError(
        f"--max-duration-s: the proof may take {longest_s:,.0f} s, but {system.name} expires in {left_s:,.0f} s, at "
        f"{system.expires_at.isoformat(timespec='seconds')}. Use a shorter time or a permanent endpoint."
    )
