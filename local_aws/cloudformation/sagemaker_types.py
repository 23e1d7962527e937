"""CloudFormation types of a scaled endpoint: model, configuration, endpoint, scalable target and scaling policy."""

from collections.abc import Mapping
from typing import Any, Self

from moto.applicationautoscaling.models import applicationautoscaling_backends
from moto.cloudformation.exceptions import ValidationError
from moto.core.common_models import CloudFormationModel
from moto.sagemaker.models import sagemaker_backends

from local_aws.cloudformation.recorded import REASON
from local_aws.cloudformation.resource import Resource, StackScope
from local_aws.cloudformation.service_api import call, call_with
from local_aws.sagemaker.control_plane import LocalSageMakerBackend, installed_in
from local_aws.sagemaker.endpoint import LocalEndpoint
from local_aws.scaling.target_tracking import variant_of

SCALING = "application-autoscaling"


class ModelResource(Resource, CloudFormationModel):
    """AWS::SageMaker::Model."""

    attribute_names = ("ModelArn", "ModelName")

    @staticmethod
    def cloudformation_name_type() -> str:
        return "ModelName"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::SageMaker::Model"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        name = _at_most_63(name)
        answer = call_with("sagemaker", "CreateModel", {**properties, "ModelName": name}, scope.region)
        return cls(answer["ModelArn"], {"ModelArn": answer["ModelArn"], "ModelName": name})

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        call("sagemaker", "DeleteModel", {"ModelName": identifier.split("/")[-1]}, scope.region)


class EndpointConfigResource(Resource, CloudFormationModel):
    """AWS::SageMaker::EndpointConfig."""

    attribute_names = ("EndpointConfigArn", "EndpointConfigName")

    @staticmethod
    def cloudformation_name_type() -> str:
        return "EndpointConfigName"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::SageMaker::EndpointConfig"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        name = _at_most_63(name)
        request = {**properties, "EndpointConfigName": name}
        arn = call_with("sagemaker", "CreateEndpointConfig", request, scope.region)["EndpointConfigArn"]
        return cls(arn, {"EndpointConfigArn": arn, "EndpointConfigName": name})

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        name = identifier.split("/")[-1]
        call("sagemaker", "DeleteEndpointConfig", {"EndpointConfigName": name}, scope.region)


class EndpointResource(Resource, CloudFormationModel):
    """AWS::SageMaker::Endpoint. Creating and updating wait until Triton answers."""

    attribute_names = ("EndpointName",)

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::SageMaker::Endpoint"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        backend = installed_in(sagemaker_backends, scope.account_id, scope.region)
        name = _at_most_63(properties.get("EndpointName", name))
        request = {**properties, "EndpointName": name}
        call_with("sagemaker", "CreateEndpoint", request, scope.region, partial=True)
        endpoint = backend.endpoint(name)
        try:
            _wait_in_service(endpoint)
        except ValidationError:
            _delete_endpoint(backend, name)
            raise
        return cls(endpoint.arn, {"EndpointName": name})

    @classmethod
    def _update(cls, old: Self, properties: Mapping[str, Any], scope: StackScope) -> Self:
        backend = installed_in(sagemaker_backends, scope.account_id, scope.region)
        existing = old.attributes["EndpointName"]
        request = {**properties, "EndpointName": existing}
        call_with("sagemaker", "UpdateEndpoint", request, scope.region, partial=True)
        endpoint = backend.endpoint(existing)
        _wait_in_service(endpoint)
        return cls(endpoint.arn, {"EndpointName": existing})

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        _delete_endpoint(installed_in(sagemaker_backends, scope.account_id, scope.region), identifier.split("/")[-1])


class ScalableTargetResource(Resource, CloudFormationModel):
    """AWS::ApplicationAutoScaling::ScalableTarget: its Ref is resource, dimension and namespace joined by |.

    Targets other than SageMaker's are recorded only.
    """

    attribute_names = ("Id",)

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::ApplicationAutoScaling::ScalableTarget"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        namespace, resource = properties["ServiceNamespace"], properties["ResourceId"]
        identifier = f"{resource}|{properties['ScalableDimension']}|{namespace}"
        made = cls(identifier, {"Id": identifier})
        if namespace != "sagemaker":
            made.status_reason = REASON
            return made
        target = {key: value for key, value in properties.items() if key != "ScheduledActions"}
        call_with(SCALING, "RegisterScalableTarget", target, scope.region)
        # Registering brings the variant within the bounds, and what comes next may be an update of its endpoint.
        endpoint, _ = variant_of(resource)
        installed_in(sagemaker_backends, scope.account_id, scope.region).endpoint(endpoint).settled.wait()
        _schedule(identifier, properties.get("ScheduledActions", []), scope)
        return made

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        target = _target(identifier)
        if target["ServiceNamespace"] == "sagemaker":
            call(SCALING, "DeregisterScalableTarget", target, scope.region)


class ScalingPolicyResource(Resource, CloudFormationModel):
    """AWS::ApplicationAutoScaling::ScalingPolicy. Policies of recorded targets are recorded only."""

    attribute_names = ("Arn", "PolicyName")

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::ApplicationAutoScaling::ScalingPolicy"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        own = {key: value for key, value in properties.items() if key != "ScalingTargetId"}
        request = {**own, **(_target(properties["ScalingTargetId"]) if "ScalingTargetId" in properties else {})}
        policy = properties["PolicyName"]
        if request["ServiceNamespace"] != "sagemaker":
            arn = f"arn:aws:autoscaling:{scope.region}:{scope.account_id}:scalingPolicy:{policy}"
            made = cls(arn, {"Arn": arn, "PolicyName": policy})
            made.status_reason = REASON
            return made
        arn = call_with(SCALING, "PutScalingPolicy", request, scope.region)["PolicyARN"]
        return cls(arn, {"Arn": arn, "PolicyName": policy})

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        backend = applicationautoscaling_backends[scope.account_id][scope.region]
        for policy in [each for each in backend.policies.values() if each.policy_arn == identifier]:
            # This also deletes the alarms that target tracking made.
            backend.delete_scaling_policy(
                policy.policy_name, policy.service_namespace, policy.resource_id, policy.scalable_dimension
            )


def _target(identifier: str) -> dict[str, str]:
    """Returns the API's parameters for a scalable target."""
    resource, dimension, namespace = identifier.split("|")
    return {"ServiceNamespace": namespace, "ResourceId": resource, "ScalableDimension": dimension}


def _schedule(identifier: str, actions: list[Mapping[str, Any]], scope: StackScope) -> None:
    """Makes `actions` the scheduled actions of a scalable target."""
    target = _target(identifier)
    present = call(SCALING, "DescribeScheduledActions", target, scope.region)["ScheduledActions"]
    names = {action["ScheduledActionName"] for action in actions}
    for name in {action["ScheduledActionName"] for action in present} - names:
        call(SCALING, "DeleteScheduledAction", {**target, "ScheduledActionName": name}, scope.region)
    for action in actions:
        call_with(SCALING, "PutScheduledAction", {**target, **action}, scope.region)


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
