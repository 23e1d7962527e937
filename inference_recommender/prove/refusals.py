"""The proofs that a target cannot give: of another archive or type, of a larger fleet, beyond its lease. Pure."""

from datetime import datetime, timedelta
from pathlib import Path

from inference_recommender.load_test.target import UNKNOWN_TYPE, Target
from workloads import Candidate, Recommendation, UsageError


def refuse_another(target: Target, recommendation: Recommendation, chosen: Candidate, file: Path) -> None:
    """Raises `UsageError` where the target serves another archive than was measured, or on another instance type."""
    wanted, serves = recommendation.archive_sha256, target.archive_sha256
    if serves is not None and serves != wanted:
        raise UsageError(
            f"{file}: archive_sha256: was measured on the artifact {wanted[:12]}…, but {target.name} serves "
            f"{serves[:12]}…. Deploy the artifact that was measured, or measure the one that serves."
        )
    if target.instance_type not in (UNKNOWN_TYPE, chosen.instance_type):
        raise UsageError(
            f"{file}: recommended.instance_type: is {chosen.instance_type}, but {target.name} runs on "
            f"{target.instance_type}. Prove it on an endpoint of {chosen.instance_type}."
        )


def refuse_less_than_the_fleet(target: Target, chosen: Candidate, peak_invocations_per_minute: float) -> None:
    """Raises `UsageError` where the target has fewer instances than the fleet whose whole load it is to bear."""
    if target.instances >= (chosen.instance_count or 1):
        return
    has = f"{target.instances} instance{'s' if target.instances != 1 else ''}"
    if target.stands_in:
        has = "one server for all of its instances, as every endpoint on this machine has"
    raise UsageError(
        f"--fleet: {target.name} has {has}, and {peak_invocations_per_minute:,} invocations/min are for the "
        f"{chosen.instance_count} that are recommended. Deploy the fleet, or leave out --fleet: each instance that is "
        "there then gets its share."
    )


def refuse_beyond_the_lease(target: Target, longest_s: float, now: datetime) -> None:
    """Raises `UsageError` where the target may be swept away before the proof has ended."""
    if target.expires_at is None or now + timedelta(seconds=longest_s) <= target.expires_at:
        return
    left_s = max((target.expires_at - now).total_seconds(), 0)
    raise UsageError(
        f"--max-duration-s: the proof may take {longest_s:,.0f} s, but {target.name} expires in {left_s:,.0f} s, at "
        f"{target.expires_at.isoformat(timespec='seconds')}. Give it less, or prove it on an endpoint that stays."
    )
