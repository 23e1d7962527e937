"""Application Auto Scaling's API: moto stores targets, policies and schedules; this module adds alarms and activities.

Only the instances of SageMaker variants are scaled. Targets of other services and policies without target tracking are
stored and described, but never act.
"""

import json
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

from moto.applicationautoscaling import urls
from moto.applicationautoscaling.exceptions import AWSValidationException
from moto.applicationautoscaling.models import (
    ApplicationAutoscalingBackend,
    FakeApplicationAutoscalingPolicy,
    FakeScalableTarget,
)
from moto.applicationautoscaling.responses import ApplicationAutoScalingResponse
from moto.cloudwatch.models import Alarm, CloudWatchBackend
from moto.moto_api._internal import mock_random

from inference_recommender.simulate.tracking import Cooldowns, ScalingSchedule
from local_aws import service_model
from local_aws.sagemaker.endpoint import LocalEndpoint
from local_aws.scaling.alarms import DIMENSION, NAMESPACE, AlarmCondition, TargetTracking, target_tracking, variant_of


class VariantCapacity:
    """Calls the function behind UpdateEndpointWeightsAndCapacities."""

    def __init__(
        self, find: Callable[[str], LocalEndpoint | None], update: Callable[[str, list[dict[str, object]]], object]
    ) -> None:
        self._find = find
        self._update = update

    def count(self, resource_id: str) -> int | None:
        """Returns the instances in service; None while the endpoint rejects changes."""
        name, variant = variant_of(resource_id)
        endpoint = self._find(name)
        settled = endpoint is not None and endpoint.endpoint_status == "InService"
        return endpoint.instance_count(variant) if endpoint is not None and settled else None

    def problem(self, resource_id: str) -> str | None:
        """Returns why the latest change failed; None if it did not, or is in progress."""
        name, _ = variant_of(resource_id)
        endpoint = self._find(name)
        if endpoint is None:
            return f"Endpoint {name} does not exist."
        failed = endpoint.endpoint_status == "Failed" or (
            endpoint.endpoint_status == "InService" and endpoint.update_failed
        )
        return endpoint.failure_reason if failed else None

    def set_count(self, resource_id: str, count: int) -> None:
        """Requests an instance count and returns at once. Raises moto's `ValidationError` if it is rejected."""
        name, variant = variant_of(resource_id)
        self._update(name, [{"VariantName": variant, "DesiredInstanceCount": count}])


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


SERVICE = "application-autoscaling"
KEPT_ACTIVITIES = 1000
"""Most activities that the account stores; AWS keeps them for six weeks."""
PAGE = 50


class LocalScalingBackend(ApplicationAutoscalingBackend):
    """Stores the service's state; `Scaler` acts on it."""

    def __init__(
        self, region_name: str, account_id: str, capacity: VariantCapacity, cloudwatch: Callable[[], CloudWatchBackend]
    ) -> None:
        super().__init__(region_name, account_id)
        self.capacity = capacity
        self.cloudwatch = cloudwatch
        self.lock = threading.RLock()
        """Held while the state changes: requests and the scaler run in different threads."""
        self.activities: deque[ScalingActivity] = deque(maxlen=KEPT_ACTIVITIES)
        """The latest first."""
        self.cooldowns: dict[str, Cooldowns] = {}
        """By resource id."""

    @property
    def _url_module(self) -> Any:
        return SimpleNamespace(
            url_bases=urls.url_bases, url_paths=dict.fromkeys(urls.url_paths, LocalScalingResponse.dispatch)
        )

    def register_scalable_target(
        self,
        namespace: str,
        r_id: str,
        dimension: str,
        min_capacity: int | None,
        max_capacity: int | None,
        role_arn: str | None,
        suspended_state: Any,
    ) -> FakeScalableTarget:
        """Registers or updates it, and scales a variant in service to the bounds."""
        role = role_arn or _service_linked_role(self.account_id, namespace)
        with self.lock:
            old = self.targets.get(dimension, {}).get(r_id)
            low = min_capacity if min_capacity is not None or old is None else old.min_capacity
            high = max_capacity if max_capacity is not None or old is None else old.max_capacity
            if low is None or high is None:
                raise AWSValidationException("You must specify values for the minimum and maximum capacity.")
            if low > high:
                raise AWSValidationException("Maximum capacity cannot be less than minimum capacity")
            target = super().register_scalable_target(namespace, r_id, dimension, low, high, role, suspended_state)
            present = self.capacity.count(r_id) if namespace == NAMESPACE else None
            if present is not None and (count := self.within_bounds(target, present)) != present:
                self.capacity.set_count(r_id, count)
            return target

    def within_bounds(self, target: FakeScalableTarget, count: int) -> int:
        """Returns the count nearest to `count` within a target's bounds."""
        return min(max(count, target.min_capacity or 0), target.max_capacity or 0)  # registered with both

    def deregister_scalable_target(self, namespace: str, r_id: str, dimension: str) -> None:
        """Deregisters it with its policies and scheduled actions."""
        with self.lock:
            super().deregister_scalable_target(namespace, r_id, dimension)
            for policy in self.policies_of(r_id, dimension):
                self.delete_scaling_policy(policy.policy_name, namespace, r_id, dimension)
            for action in self.describe_scheduled_actions("", namespace, r_id, dimension):
                self.delete_scheduled_action(namespace, action.scheduled_action_name, r_id, dimension)
            self.cooldowns.pop(r_id, None)

    def put_scaling_policy(
        self,
        policy_name: str,
        service_namespace: str,
        resource_id: str,
        scalable_dimension: str,
        policy_body: dict[str, Any],
        policy_type: str | None,
    ) -> FakeApplicationAutoscalingPolicy:
        """Puts it with the two alarms of target tracking. An update keeps the ARN and creates new alarms."""
        with self.lock:
            if resource_id not in self.targets.get(scalable_dimension, {}):
                raise AWSValidationException(
                    f"No scalable target registered for service namespace: {service_namespace}, resource ID: "
                    f"{resource_id}, scalable dimension: {scalable_dimension}"
                )
            present = self.policies_of(resource_id, scalable_dimension)
            old = next((each for each in present if each.policy_name == policy_name), None)
            body, kind = policy_body or (old and old._policy_body), policy_type or (old and old.policy_type)
            tracks = service_namespace == NAMESPACE and kind == "TargetTrackingScaling"
            tracking = target_tracking(resource_id, body) if tracks and body else None
            policy = super().put_scaling_policy(
                policy_name, service_namespace, resource_id, scalable_dimension, policy_body, policy_type
            )
            if old is not None:
                policy.policy_arn, policy.creation_time = old.policy_arn, old.creation_time
                old.delete_alarms(self.account_id, self.region_name)
            if tracking is not None:
                policy.alarms.extend(self._alarms(policy, tracking))
            return policy

    def policies_of(self, resource_id: str, dimension: str) -> list[FakeApplicationAutoscalingPolicy]:
        return [
            each
            for each in list(self.policies.values())
            if (each.resource_id, each.scalable_dimension) == (resource_id, dimension)
        ]

    def _alarms(self, policy: FakeApplicationAutoscalingPolicy, tracking: TargetTracking) -> list[Alarm]:
        action = f"{policy.policy_arn}:createdBy/{mock_random.uuid4()}"

        def alarm(kind: str, condition: AlarmCondition) -> Alarm:
            made = self.cloudwatch().put_metric_alarm(
                name=f"TargetTracking-{policy.resource_id}-{kind}-{mock_random.uuid4()}",
                namespace=tracking.metric.namespace,
                metric_name=tracking.metric.name,
                dimensions=[{"Name": name, "Value": value} for name, value in tracking.metric.dimensions],
                statistic=tracking.metric.statistic,
                period=tracking.metric.period_s,
                unit=tracking.metric.unit,
                comparison_operator=condition.comparison,
                threshold=condition.threshold,
                evaluation_periods=condition.periods,
                description=f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {policy.policy_arn}.",
                alarm_actions=[action],
            )
            made.state_value = "INSUFFICIENT_DATA"
            return made

        return [alarm("AlarmHigh", tracking.high), alarm("AlarmLow", tracking.low)]


def _service_linked_role(account_id: str, namespace: str) -> str:
    """Returns the service-linked role of a scalable target without a role."""
    name = "AWSServiceRoleForApplicationAutoScaling" + ("_SageMakerEndpoint" if namespace == NAMESPACE else "")
    path = f"aws-service-role/{namespace}.application-autoscaling.amazonaws.com"
    return f"arn:aws:iam::{account_id}:role/{path}/{name}"


class LocalScalingResponse(ApplicationAutoScalingResponse):
    @property
    def _local(self) -> LocalScalingBackend:
        backend = self.applicationautoscaling_backend
        assert isinstance(backend, LocalScalingBackend), "installed before the server starts"
        return backend

    def put_scaling_policy(self) -> str:
        self._checked()
        return super().put_scaling_policy()

    def register_scalable_target(self) -> str:
        self._checked()
        return super().register_scalable_target()

    def put_scheduled_action(self) -> str:
        request = self._checked()
        if "Schedule" in request:
            try:
                ScalingSchedule.parse(request["Schedule"], request.get("Timezone"))
            except ValueError as error:
                raise NotImplementedError(f"a schedule such as this one: {error}") from error
        return super().put_scheduled_action()

    def describe_scaling_activities(self) -> str:
        """Describes activities, the latest first."""
        request = self._checked()
        filters = ("ServiceNamespace", "ResourceId", "ScalableDimension")
        wanted = {name: request[name] for name in filters if name in request}
        with self._local.lock:
            every = [each.described() for each in self._local.activities]
        found = [each for each in every if wanted.items() <= each.items()]
        first, most = int(request.get("NextToken", 0)), int(request.get("MaxResults", PAGE))
        more = {"NextToken": str(first + most)} if len(found) > first + most else {}
        return json.dumps({"ScalingActivities": found[first : first + most], **more})

    def _checked(self) -> Mapping[str, Any]:
        """Returns the request, checked against botocore's service model."""
        request: Mapping[str, Any] = json.loads(self.body)
        service_model.check(SERVICE, self._get_action(), request)
        return request
