"""When something that was made for a test may be deleted: a tag with a time, which `sweep` goes by.

Nothing deletes itself at that time. A test deletes what it made; the tag is for what it left behind because its process
was killed or its machine was lost.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

TAG = "inference-recommender:expires-at"
"""Key of the tag. Its value is the time in ISO 8601, in UTC."""
GRACE_S = 7200
"""Seconds that a thing may live beyond the load it was made for: endpoints take minutes to start and to go."""


def expiry_tag(at: datetime) -> dict[str, str]:
    """Returns the tag in the shape of SageMaker's API."""
    return {"Key": TAG, "Value": at.astimezone(timezone.utc).isoformat(timespec="seconds")}


def expiry_of(tags: Iterable[Mapping[str, str]]) -> datetime | None:
    """Returns the time at which a thing with these tags expires; None without the tag, or where it is no time with a
    zone, as only another hand can have written it.
    """
    value = next((tag["Value"] for tag in tags if tag["Key"] == TAG), "")
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return at if at.tzinfo else None
