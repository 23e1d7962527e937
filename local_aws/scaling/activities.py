"""Scaling activities in the shape of DescribeScalingActivities. Times are Unix times.

Description, cause and status follow
https://docs.aws.amazon.com/autoscaling/application/userguide/application-auto-scaling-scaling-activities.html
"""

import uuid
from dataclasses import dataclass, field
from typing import Any, Literal

from local_aws.scaling.target_tracking import DIMENSION, NAMESPACE

ActivityStatus = Literal["InProgress", "Successful", "Failed"]
_DONE = "Successfully set desired instance count to"


@dataclass(slots=True)
class ScalingActivity:
    """One change of a variant's instance count."""

    resource_id: str
    count: int
    """The requested instances."""
    cause: str
    started_at: float
    added: int
    """Added instances, or removed ones as a negative number."""
    cooldown_s: float
    """Begins when the activity is complete."""
    status: ActivityStatus = "InProgress"
    ended_at: float | None = None
    reason: str | None = None
    """Why it failed."""
    identifier: str = field(default_factory=lambda: str(uuid.uuid4()))

    def end(self, at: float, reason: str | None) -> None:
        """Ends it: as failed if there is a reason, else as successful."""
        self.status, self.ended_at, self.reason = "Failed" if reason else "Successful", at, reason

    @property
    def message(self) -> str:
        match self.status:
            case "InProgress":
                return f"{_DONE} {self.count}. Waiting for change to be fulfilled by {NAMESPACE}."
            case "Successful":
                return f"{_DONE} {self.count}. Change successfully fulfilled by {NAMESPACE}."
            case "Failed":
                return f"Failed to set desired instance count to {self.count}. Reason: {self.reason}"

    def described(self) -> dict[str, Any]:
        ended = {} if self.ended_at is None else {"EndTime": self.ended_at}
        return {
            "ActivityId": self.identifier,
            "ServiceNamespace": NAMESPACE,
            "ResourceId": self.resource_id,
            "ScalableDimension": DIMENSION,
            "Description": f"Setting desired instance count to {self.count}.",
            "Cause": self.cause,
            "StartTime": self.started_at,
            **ended,
            "StatusCode": self.status,
            "StatusMessage": self.message,
        }
