"""Scaling activities in the shape of DescribeScalingActivities, and the state that they leave at a scalable target.

Times are Unix times; no clock is read here. The words of description, cause and status are the service's:
https://docs.aws.amazon.com/autoscaling/application/userguide/application-auto-scaling-scaling-activities.html
"""

import uuid
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["InProgress", "Successful", "Failed"]
_DONE = "Successfully set desired instance count to"


@dataclass(slots=True)
class Activity:
    """One change of a variant's instance count."""

    namespace: str
    resource_id: str
    dimension: str
    count: int
    """The instances that were asked for."""
    cause: str
    started_at: float
    added: int
    """Instances that it adds; negative where it removes some."""
    cooldown_s: float
    """Begins when the activity is complete."""
    status: Status = "InProgress"
    ended_at: float | None = None
    reason: str | None = None
    """Why it failed."""
    identifier: str = field(default_factory=lambda: str(uuid.uuid4()))

    def end(self, at: float, reason: str | None) -> None:
        """Ends it: as failed where there is a reason, else as successful."""
        self.status, self.ended_at, self.reason = "Failed" if reason else "Successful", at, reason

    @property
    def message(self) -> str:
        match self.status:
            case "InProgress":
                return f"{_DONE} {self.count}. Waiting for change to be fulfilled by {self.namespace}."
            case "Successful":
                return f"{_DONE} {self.count}. Change successfully fulfilled by {self.namespace}."
            case "Failed":
                return f"Failed to set desired instance count to {self.count}. Reason: {self.reason}"

    def described(self) -> dict[str, Any]:
        ended = {} if self.ended_at is None else {"EndTime": self.ended_at}
        return {
            "ActivityId": self.identifier,
            "ServiceNamespace": self.namespace,
            "ResourceId": self.resource_id,
            "ScalableDimension": self.dimension,
            "Description": f"Setting desired instance count to {self.count}.",
            "Cause": self.cause,
            "StartTime": self.started_at,
            **ended,
            "StatusCode": self.status,
            "StatusMessage": self.message,
        }


@dataclass(slots=True)
class Cooldowns:
    """The cooldowns of a scalable target, as the API's documentation has them.

    Within a scale-out's, the capacity that it added is part of the next one's: only a larger scale-out adds, and only
    its difference. A scale-in's blocks other scale-ins, and a scale-out stops it.
    https://docs.aws.amazon.com/autoscaling/application/APIReference/API_StepScalingPolicyConfiguration.html
    """

    out_until: float = 0.0
    in_until: float = 0.0
    added: int = 0
    """Instances that the latest scale-out added."""

    def base(self, now: float, instances: int) -> int:
        """Returns the capacity that a scale-out is computed from."""
        return max(instances - self.added, 1) if now < self.out_until else instances

    def begin(self, activity: Activity) -> None:
        """Begins the cooldown of an activity that has just ended successfully."""
        assert activity.ended_at is not None, "it has ended"
        if not activity.cooldown_s:
            return
        until = activity.ended_at + activity.cooldown_s
        if activity.added > 0:
            self.out_until, self.added = until, activity.added
        else:
            self.in_until = until

    def stop_scale_in(self) -> None:
        self.in_until = 0.0
