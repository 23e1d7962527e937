"""The tag with the time after which `jobs cleanup` may delete what a killed test has left behind."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

TAG = "inference-recommender:expires-at"
"""Key of the tag. Its value is the time in ISO 8601, in UTC."""
GRACE_S = 7200
"""Seconds of life beyond the load: endpoints take minutes to start and to be deleted."""


def expiry_tag(at: datetime) -> dict[str, str]:
    """Returns the tag in the shape of SageMaker's API."""
    return {"Key": TAG, "Value": at.astimezone(timezone.utc).isoformat(timespec="seconds")}


def expiry_of(tags: Iterable[Mapping[str, str]]) -> datetime | None:
    """Returns the time at which a resource with these tags expires; None without a time that has a zone."""
    value = next((tag["Value"] for tag in tags if tag["Key"] == TAG), "")
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return at if at.tzinfo else None
