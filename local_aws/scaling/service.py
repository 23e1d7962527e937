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
from typing import Any

from moto.applicationautoscaling.exceptions import AWSValidationException
from moto.applicationautoscaling.models import (
    ApplicationAutoscalingBackend,
    FakeApplicationAutoscalingPolicy,
    FakeScalableTarget,
)
from moto.applicationautoscaling.responses import ApplicationAutoScalingResponse
from moto.cloudwatch.models import cloudwatch_backends
from moto.moto_api._internal import mock_random
from moto.sagemaker.models import sagemaker_backends

from inference_recommender.simulate.tracking import Cooldowns, ScalingSchedule
from local_aws import service_model
from local_aws.scaling.alarms import DIMENSION, NAMESPACE, tracking_alarms, variant_of


class VariantCapacity:
    """The instances of the variants of a region's endpoints."""

    def __init__(self, sagemaker: Callable[[], Any]) -> None:
        self._sagemaker = sagemaker

    def count(self, resource_id: str) -> int | None:
        """Returns the instances in service; None while the endpoint rejects changes."""
        name, variant = variant_of(resource_id)
        endpoint = self._sagemaker().endpoints.get(name)
        in_service = endpoint is not None and endpoint.endpoint_status == "InService"
        return endpoint.instance_count(variant) if in_service else None

    def problem(self, resource_id: str) -> str | None:
        """Returns why the latest change failed; None if it did not, or is in progress."""
        name, _ = variant_of(resource_id)
        endpoint = self._sagemaker().endpoints.get(name)
        if endpoint is None:
            return f"Endpoint {name} does not exist."
        status = endpoint.endpoint_status
        failed = status == "Failed" or (status == "InService" and endpoint.update_failed)
        return endpoint.failure_reason if failed else None

    def set_count(self, resource_id: str, count: int) -> None:
        """Requests an instance count and returns at once. Raises moto's `ValidationError` if it is rejected."""
        name, variant = variant_of(resource_id)
        desired = [{"VariantName": variant, "DesiredInstanceCount": count}]
        self._sagemaker().update_endpoint_weights_and_capacities(name, desired)


@dataclass(slots=True)
class ScalingActivity:
    """One change of a variant's instance count."""

    resource_id: str
    count: int
    cause: str
    started_at: float
    added: int
    cooldown_s: float
    ended_at: float | None = None
    reason: str | None = None
    identifier: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def message(self) -> str:
        if self.reason:
            return f"Failed to set desired instance count to {self.count}. Reason: {self.reason}"
        change = "Waiting for change to be" if self.ended_at is None else "Change successfully"
        return f"Successfully set desired instance count to {self.count}. {change} fulfilled by {NAMESPACE}."

    def described(self) -> dict[str, Any]:
        status = "InProgress" if self.ended_at is None else "Failed" if self.reason else "Successful"
        return {
            "ActivityId": self.identifier,
            "ServiceNamespace": NAMESPACE,
            "ResourceId": self.resource_id,
            "ScalableDimension": DIMENSION,
            "Description": f"Setting desired instance count to {self.count}.",
            "Cause": self.cause,
            "StartTime": self.started_at,
            **({} if self.ended_at is None else {"EndTime": self.ended_at}),
            "StatusCode": status,
            "StatusMessage": self.message,
        }


SERVICE = "application-autoscaling"
KEPT_ACTIVITIES = 1000
PAGE = 50


class LocalScalingBackend(ApplicationAutoscalingBackend):
    """Stores the service's state; `Scaler` acts on it."""

    def __init__(self, region_name: str, account_id: str) -> None:
        super().__init__(region_name, account_id)
        self.capacity = VariantCapacity(lambda: sagemaker_backends[account_id][region_name])
        self.lock = threading.RLock()
        """Held while the state changes: requests and the scaler run in different threads."""
        self.activities: deque[ScalingActivity] = deque(maxlen=KEPT_ACTIVITIES)
        self.cooldowns: dict[str, Cooldowns] = {}

    def register_scalable_target(  # type: ignore[override]  # the others are given by name
        self, namespace: str, r_id: str, dimension: str, **about: Any
    ) -> FakeScalableTarget:
        """Registers or updates it, and scales a variant in service to the bounds."""
        linked = "AWSServiceRoleForApplicationAutoScaling" + ("_SageMakerEndpoint" if namespace == NAMESPACE else "")
        path = f"aws-service-role/{namespace}.application-autoscaling.amazonaws.com"
        role = about["role_arn"] or f"arn:aws:iam::{self.account_id}:role/{path}/{linked}"
        with self.lock:
            old = self.targets.get(dimension, {}).get(r_id)
            low, high = (
                getattr(old, name, None) if about[name] is None else about[name]
                for name in ("min_capacity", "max_capacity")
            )
            if low is None or high is None:
                raise AWSValidationException("You must specify values for the minimum and maximum capacity.")
            if low > high:
                raise AWSValidationException("Maximum capacity cannot be less than minimum capacity")
            suspended = about["suspended_state"]
            target = super().register_scalable_target(namespace, r_id, dimension, low, high, role, suspended)
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

    def put_scaling_policy(self, **about: Any) -> FakeApplicationAutoscalingPolicy:  # type: ignore[override]
        """Puts it with the two alarms of target tracking. An update keeps the ARN and creates new alarms."""
        resource_id, scalable_dimension = about["resource_id"], about["scalable_dimension"]
        service_namespace, policy_body = about["service_namespace"], about["policy_body"]
        with self.lock:
            if resource_id not in self.targets.get(scalable_dimension, {}):
                raise AWSValidationException(
                    f"No scalable target registered for service namespace: {service_namespace}, resource ID: "
                    f"{resource_id}, scalable dimension: {scalable_dimension}"
                )
            present = self.policies_of(resource_id, scalable_dimension)
            old = next((each for each in present if each.policy_name == about["policy_name"]), None)
            body, kind = policy_body or (old and old._policy_body), about["policy_type"] or (old and old.policy_type)
            tracks = service_namespace == NAMESPACE and kind == "TargetTrackingScaling"
            alarms = tracking_alarms(resource_id, body) if tracks and body else {}
            policy = super().put_scaling_policy(**about)
            if old is not None:
                policy.policy_arn, policy.creation_time = old.policy_arn, old.creation_time
                old.delete_alarms(self.account_id, self.region_name)
            action = f"{policy.policy_arn}:createdBy/{mock_random.uuid4()}"
            for kind, about_alarm in alarms.items():
                made = cloudwatch_backends[self.account_id][self.region_name].put_metric_alarm(
                    name=f"TargetTracking-{policy.resource_id}-{kind}-{mock_random.uuid4()}",
                    description=f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {policy.policy_arn}.",
                    alarm_actions=[action],
                    **about_alarm,
                )
                made.state_value = "INSUFFICIENT_DATA"
                policy.alarms.append(made)
            return policy

    def policies_of(self, resource_id: str, dimension: str) -> list[FakeApplicationAutoscalingPolicy]:
        return [
            each
            for each in list(self.policies.values())
            if (each.resource_id, each.scalable_dimension) == (resource_id, dimension)
        ]


class LocalScalingResponse(ApplicationAutoScalingResponse):
    @property
    def _local(self) -> LocalScalingBackend:
        return self.applicationautoscaling_backend  # type: ignore[return-value]  # installed before the server starts

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
        return json.dumps(service_model.page("ScalingActivities", found, request, PAGE))

    def _checked(self) -> Mapping[str, Any]:
        request: Mapping[str, Any] = json.loads(self.body)
        service_model.check(SERVICE, self._get_action(), request)
        return request
