"""CloudFormation resource types of a scaled endpoint: the endpoint, its scalable target and its scaling policies.

An endpoint waits for a real Triton; the other two need more than one call of an API. The classes register themselves
with moto, as those of `resource_types` do.
"""

from collections.abc import Mapping
from typing import Any, Self

from moto.applicationautoscaling.models import applicationautoscaling_backends
from moto.cloudformation.exceptions import ValidationError
from moto.core.common_models import CloudFormationModel
from moto.sagemaker.models import sagemaker_backends

from local_aws.cloudformation.resource import Resource, Where
from local_aws.cloudformation.service_api import as_request, call, input_shape
from local_aws.sagemaker.control_plane import LocalSageMakerBackend, installed_in
from local_aws.sagemaker.endpoint import LocalEndpoint
from local_aws.scaling.target_tracking import variant_of


class EndpointResource(Resource, CloudFormationModel):
    """AWS::SageMaker::Endpoint. Creating and updating wait until Triton answers."""

    attribute_names = ("EndpointName",)

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::SageMaker::Endpoint"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], where: Where) -> Self:
        backend = installed_in(sagemaker_backends, where.account_id, where.region)
        name = _at_most_63(properties.get("EndpointName", name))
        _call_endpoint("CreateEndpoint", {**properties, "EndpointName": name}, where)
        endpoint = backend.endpoint(name)
        try:
            _wait_in_service(endpoint)
        except ValidationError:
            _delete_endpoint(backend, name)
            raise
        return cls(endpoint.arn, {"EndpointName": name})

    @classmethod
    def _update(cls, old: Self, name: str, properties: Mapping[str, Any], where: Where) -> Self:
        backend = installed_in(sagemaker_backends, where.account_id, where.region)
        existing = old.attributes["EndpointName"]
        _call_endpoint("UpdateEndpoint", {**properties, "EndpointName": existing}, where)
        endpoint = backend.endpoint(existing)
        _wait_in_service(endpoint)
        return cls(endpoint.arn, {"EndpointName": existing})

    @classmethod
    def _delete(cls, identifier: str, where: Where) -> None:
        _delete_endpoint(installed_in(sagemaker_backends, where.account_id, where.region), identifier.split("/")[-1])


class ScalableTargetResource(Resource, CloudFormationModel):
    """AWS::ApplicationAutoScaling::ScalableTarget: its Ref is resource, dimension and namespace joined by |."""

    attribute_names = ("Id",)

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::ApplicationAutoScaling::ScalableTarget"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], where: Where) -> Self:
        low, high = int(properties["MinCapacity"]), int(properties["MaxCapacity"])
        namespace, resource = properties["ServiceNamespace"], properties["ResourceId"]
        suspended: Any = properties.get("SuspendedState")
        applicationautoscaling_backends[where.account_id][where.region].register_scalable_target(
            namespace,
            resource,
            properties["ScalableDimension"],
            low,
            high,
            properties.get("RoleARN", ""),
            suspended,
        )
        if namespace == "sagemaker":
            # Registering brings the variant within the bounds, and what comes next may be an update of its endpoint.
            endpoint, _ = variant_of(resource)
            installed_in(sagemaker_backends, where.account_id, where.region).endpoint(endpoint).settled.wait()
        identifier = f"{resource}|{properties['ScalableDimension']}|{namespace}"
        _schedule(identifier, properties.get("ScheduledActions", []), where)
        return cls(identifier, {"Id": identifier})

    @classmethod
    def _delete(cls, identifier: str, where: Where) -> None:
        resource, dimension, namespace = identifier.split("|")
        backend = applicationautoscaling_backends[where.account_id][where.region]
        backend.deregister_scalable_target(namespace, resource, dimension)


class ScalingPolicyResource(Resource, CloudFormationModel):
    """AWS::ApplicationAutoScaling::ScalingPolicy."""

    attribute_names = ("Arn", "PolicyName")

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::ApplicationAutoScaling::ScalingPolicy"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], where: Where) -> Self:
        policy_name, kind = properties["PolicyName"], properties["PolicyType"]
        policy = applicationautoscaling_backends[where.account_id][where.region].put_scaling_policy(
            policy_name,
            *_target_of(properties),
            properties[f"{kind}PolicyConfiguration"],
            kind,
        )
        return cls(policy.policy_arn, {"Arn": policy.policy_arn, "PolicyName": policy_name})

    @classmethod
    def _update(cls, old: Self, name: str, properties: Mapping[str, Any], where: Where) -> Self:
        made = cls._create(name, properties, where)
        if made.identifier != old.identifier:  # another target or name: another policy
            cls._delete(old.identifier, where)
        return made

    @classmethod
    def _delete(cls, identifier: str, where: Where) -> None:
        backend = applicationautoscaling_backends[where.account_id][where.region]
        for policy in [each for each in backend.policies.values() if each.policy_arn == identifier]:
            # This also deletes the alarms that target tracking made.
            backend.delete_scaling_policy(
                policy.policy_name, policy.service_namespace, policy.resource_id, policy.scalable_dimension
            )


def _schedule(identifier: str, wanted: list[Mapping[str, Any]], where: Where) -> None:
    """Makes the scheduled actions of a scalable target those that are wanted."""
    resource, dimension, namespace = identifier.split("|")
    target = {"ServiceNamespace": namespace, "ResourceId": resource, "ScalableDimension": dimension}
    service = "application-autoscaling"
    present = call(service, "DescribeScheduledActions", target, where.region)["ScheduledActions"]
    names = {action["ScheduledActionName"] for action in wanted}
    for name in {action["ScheduledActionName"] for action in present} - names:
        call(service, "DeleteScheduledAction", {**target, "ScheduledActionName": name}, where.region)
    shape = input_shape(service, "PutScheduledAction", where.region)
    for action in wanted:
        call(service, "PutScheduledAction", as_request(shape, {**target, **action}), where.region)


def _call_endpoint(operation: str, properties: Mapping[str, Any], where: Where) -> None:
    """Calls CreateEndpoint or UpdateEndpoint, which each take their own part of the properties."""
    shape = input_shape("sagemaker", operation, where.region)
    call("sagemaker", operation, as_request(shape, properties, partial=True), where.region)


def _wait_in_service(endpoint: LocalEndpoint) -> None:
    endpoint.settled.wait()
    if endpoint.endpoint_status != "InService" or endpoint.update_failed:
        raise ValidationError(message=f"Endpoint {endpoint.endpoint_name} did not come up: {endpoint.failure_reason}")


def _delete_endpoint(backend: LocalSageMakerBackend, name: str) -> None:
    if name in backend.endpoints:
        endpoint = backend.endpoint(name)
        backend.delete_endpoint(name)
        endpoint.settled.wait()


def _at_most_63(name: str) -> str:
    """Shortens a generated name in the middle, so that its random end stays, as CloudFormation does."""
    return name if len(name) <= 63 else f"{name[:50]}-{name[-12:]}"


def _target_of(properties: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns (namespace, resource, dimension), from ScalingTargetId or from the three properties."""
    if identifier := properties.get("ScalingTargetId"):
        resource, dimension, namespace = identifier.split("|")
        return namespace, resource, dimension
    return properties["ServiceNamespace"], properties["ResourceId"], properties["ScalableDimension"]
