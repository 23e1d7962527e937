"""CloudFormation types of a scaled endpoint: model, configuration, endpoint, scalable target and scaling policy."""

from collections.abc import Mapping
from typing import Any, Self

from moto.applicationautoscaling.models import applicationautoscaling_backends
from moto.cloudformation.exceptions import ValidationError
from moto.sagemaker.models import sagemaker_backends

from local_aws.cloudformation.recorded import REASON
from local_aws.cloudformation.service_api import Resource, StackScope, call, call_with
from local_aws.sagemaker.control_plane import LocalSageMakerBackend
from local_aws.scaling.alarms import variant_of

SCALING = "application-autoscaling"


class ModelResource(Resource, kind="AWS::SageMaker::Model", name="ModelName"):
    """AWS::SageMaker::Model, and what its subclass makes of another noun."""

    deletion = ("sagemaker", "DeleteModel", "ModelName")
    noun = "Model"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        request = {**properties, f"{cls.noun}Name": _at_most_63(name)}
        arn = call_with("sagemaker", f"Create{cls.noun}", request, scope.region)[f"{cls.noun}Arn"]
        return cls(arn, {f"{cls.noun}Arn": arn, f"{cls.noun}Name": request[f"{cls.noun}Name"]})


class EndpointConfigResource(ModelResource, kind="AWS::SageMaker::EndpointConfig", name="EndpointConfigName"):
    """AWS::SageMaker::EndpointConfig."""

    deletion = ("sagemaker", "DeleteEndpointConfig", "EndpointConfigName")
    noun = "EndpointConfig"


class EndpointResource(Resource, kind="AWS::SageMaker::Endpoint"):
    """AWS::SageMaker::Endpoint. Creating and updating wait until Triton answers."""

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        name = _at_most_63(properties.get("EndpointName", name))
        try:
            return cls._settled("CreateEndpoint", name, properties, scope)
        except ValidationError:
            cls._delete(name, scope)
            raise

    @classmethod
    def _update(cls, old: Self, properties: Mapping[str, Any], scope: StackScope) -> Self:
        return cls._settled("UpdateEndpoint", old.attributes["EndpointName"], properties, scope)

    @classmethod
    def _settled(cls, operation: str, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        call_with("sagemaker", operation, {**properties, "EndpointName": name}, scope.region, partial=True)
        endpoint = _backend(scope).endpoint(name)
        endpoint.settled.wait()
        if endpoint.endpoint_status != "InService" or endpoint.update_failed:
            raise ValidationError(message=f"Endpoint {name} did not come up: {endpoint.failure_reason}")
        return cls(endpoint.arn, {"EndpointName": name})

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        backend, name = _backend(scope), identifier.rpartition("/")[2]
        if name in backend.endpoints:
            endpoint = backend.endpoint(name)
            endpoint.settled.wait()  # an endpoint that is Updating cannot be deleted
            backend.delete_endpoint(name)
            endpoint.settled.wait()


class ScalableTargetResource(Resource, kind="AWS::ApplicationAutoScaling::ScalableTarget"):
    """AWS::ApplicationAutoScaling::ScalableTarget. Targets other than SageMaker's are recorded only."""

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
        _backend(scope).endpoint(endpoint).settled.wait()
        _schedule(identifier, properties.get("ScheduledActions", []), scope)
        return made

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        target = _target(identifier)
        if target["ServiceNamespace"] == "sagemaker":
            call(SCALING, "DeregisterScalableTarget", target, scope.region)


class ScalingPolicyResource(Resource, kind="AWS::ApplicationAutoScaling::ScalingPolicy"):
    """AWS::ApplicationAutoScaling::ScalingPolicy. Policies of recorded targets are recorded only."""

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
    resource, dimension, namespace = identifier.split("|")
    return {"ServiceNamespace": namespace, "ResourceId": resource, "ScalableDimension": dimension}


def _schedule(identifier: str, actions: list[Mapping[str, Any]], scope: StackScope) -> None:
    target = _target(identifier)
    present = call(SCALING, "DescribeScheduledActions", target, scope.region)["ScheduledActions"]
    names = {action["ScheduledActionName"] for action in actions}
    for name in {action["ScheduledActionName"] for action in present} - names:
        call(SCALING, "DeleteScheduledAction", {**target, "ScheduledActionName": name}, scope.region)
    for action in actions:
        call_with(SCALING, "PutScheduledAction", {**target, **action}, scope.region)


def _backend(scope: StackScope) -> LocalSageMakerBackend:
    return sagemaker_backends[scope.account_id][scope.region]  # type: ignore[return-value]  # installed before


def _at_most_63(name: str) -> str:
    """Shortens a generated name in the middle, so that its random end stays, as CloudFormation does."""
    return name if len(name) <= 63 else f"{name[:50]}-{name[-12:]}"
