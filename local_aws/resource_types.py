"""CloudFormation resource types that need more than one call of an API, or must wait for something real here.

A class that extends moto's `CloudFormationModel` registers itself by its type; where moto has one for the same type
the later definition, ours, wins. What CloudFormation calls Ref is `physical_resource_id`. `register` adds the types of
`api_types` and `recorded`, which are rows and no classes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from moto.applicationautoscaling.models import applicationautoscaling_backends
from moto.cloudformation.exceptions import UnformattedGetAttTemplateException, ValidationError
from moto.cloudformation.parsing import get_model_map
from moto.cloudwatch.models import CloudWatchBackend, cloudwatch_backends
from moto.core.common_models import CloudFormationModel
from moto.iam.access_control import IAMPolicy
from moto.s3.models import s3_backends
from moto.sagemaker.models import sagemaker_backends

from local_aws.api_request import as_request
from local_aws.api_types import API_TYPES
from local_aws.endpoint import LocalEndpoint
from local_aws.metric_alarm import alarm_arguments
from local_aws.recorded import RECORDED_TYPES
from local_aws.sagemaker import LocalSageMakerBackend, installed_in
from local_aws.service_api import call, input_shape


def register() -> None:
    """Make the rows known to moto. Before the first stack; a second time changes nothing."""
    models: dict[str, Any] = get_model_map()
    models.update({kind.name: kind for kind in API_TYPES})
    models.update({kind.name: kind for kind in RECORDED_TYPES})


@dataclass(frozen=True, slots=True)
class Where:
    account_id: str
    region: str


class _Resource(CloudFormationModel):  # its type "" is never in a template
    """What all of ours share: moto's wordy methods made short, GetAtt from a table, and one generated name.

    The short ones are private because moto takes a public `delete` for its own.
    """

    attribute_names: tuple[str, ...] = ()

    def __init__(self, identifier: str, attributes: Mapping[str, str]) -> None:
        self.identifier = identifier
        self.attributes = attributes

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], where: Where) -> Self:
        """`name` is the one that CloudFormation generated."""
        raise NotImplementedError

    @classmethod
    def _update(cls, old: Self, name: str, properties: Mapping[str, Any], where: Where) -> Self:
        """Creating again overwrites; under another identifier it makes a second one, and the old one goes."""
        new = cls._create(name, properties, where)
        if new.identifier != old.identifier:
            cls._delete(old.identifier, where)
        return new

    @classmethod
    def _delete(cls, identifier: str, where: Where) -> None:
        raise NotImplementedError

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **kwargs: Any
    ) -> Self:
        return cls._create(resource_name, cloudformation_json["Properties"], Where(account_id, region_name))

    @classmethod
    def update_from_cloudformation_json(
        cls, original_resource: Any, new_resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> Self:
        where = Where(account_id, region_name)
        return cls._update(original_resource, new_resource_name, cloudformation_json["Properties"], where)

    @classmethod
    def delete_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> None:
        cls._delete(resource_name, Where(account_id, region_name))

    @property
    def physical_resource_id(self) -> str:
        return self.identifier

    def get_cfn_attribute(self, attribute_name: str) -> str:
        if attribute_name not in self.attributes:
            raise UnformattedGetAttTemplateException()
        return self.attributes[attribute_name]

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return attr in cls.attribute_names

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    def is_created(self) -> bool:
        return True


class EndpointResource(_Resource, CloudFormationModel):
    """AWS::SageMaker::Endpoint: creating and updating wait until Triton answers."""

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
        kept = old.attributes["EndpointName"]
        _call_endpoint("UpdateEndpoint", {**properties, "EndpointName": kept}, where)
        endpoint = backend.endpoint(kept)
        _wait_in_service(endpoint)
        return cls(endpoint.arn, {"EndpointName": kept})

    @classmethod
    def _delete(cls, identifier: str, where: Where) -> None:
        _delete_endpoint(installed_in(sagemaker_backends, where.account_id, where.region), identifier.split("/")[-1])


class ScalableTargetResource(_Resource, CloudFormationModel):
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
            properties.get("RoleARN") or _service_linked_role(where.account_id, namespace),
            suspended,
        )
        if namespace == "sagemaker":
            _, endpoint, _, variant = resource.split("/")
            backend = installed_in(sagemaker_backends, where.account_id, where.region)
            backend.endpoint(endpoint).clamp(variant, low, high)
        identifier = f"{resource}|{properties['ScalableDimension']}|{namespace}"
        _schedule(identifier, properties.get("ScheduledActions", []), where)
        return cls(identifier, {"Id": identifier})

    @classmethod
    def _delete(cls, identifier: str, where: Where) -> None:
        _schedule(identifier, [], where)
        resource, dimension, namespace = identifier.split("|")
        backend = applicationautoscaling_backends[where.account_id][where.region]
        backend.deregister_scalable_target(namespace, resource, dimension)


class ScalingPolicyResource(_Resource, CloudFormationModel):
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
        # moto keys a policy by target and name: putting the same again replaces it, anything else is a new one.
        cls._delete(old.identifier, where)
        return cls._create(name, properties, where)

    @classmethod
    def _delete(cls, identifier: str, where: Where) -> None:
        backend = applicationautoscaling_backends[where.account_id][where.region]
        for policy in [each for each in backend.policies.values() if each.policy_arn == identifier]:
            # With the alarms that tracking a target made.
            backend.delete_scaling_policy(
                policy.policy_name, policy.service_namespace, policy.resource_id, policy.scalable_dimension
            )


class AlarmResource(_Resource, CloudFormationModel):
    """AWS::CloudWatch::Alarm: its Ref is the alarm's name."""

    attribute_names = ("Arn",)

    @staticmethod
    def cloudformation_name_type() -> str:
        return "AlarmName"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::CloudWatch::Alarm"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], where: Where) -> Self:
        backend: CloudWatchBackend = cloudwatch_backends[where.account_id][where.region]
        alarm = backend.put_metric_alarm(name=name, **alarm_arguments(properties))
        return cls(name, {"Arn": alarm.alarm_arn})

    @classmethod
    def _update(cls, old: Self, name: str, properties: Mapping[str, Any], where: Where) -> Self:
        return super()._update(old, properties.get("AlarmName", old.identifier), properties, where)

    @classmethod
    def _delete(cls, identifier: str, where: Where) -> None:
        cloudwatch_backends[where.account_id][where.region].delete_alarms([identifier])


class BucketPolicyResource(_Resource, CloudFormationModel):
    """AWS::S3::BucketPolicy, which `cdk bootstrap` makes: its Ref is the bucket's name."""

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::S3::BucketPolicy"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], where: Where) -> Self:
        document = properties["PolicyDocument"]
        s3 = s3_backends[where.account_id]["aws"]
        s3.put_bucket_policy(properties["Bucket"], json.dumps(document).encode())
        bucket: Any = s3.get_bucket(properties["Bucket"])
        bucket.get_permission = IAMPolicy(json.dumps(enforceable(document))).is_action_permitted
        return cls(properties["Bucket"], {})

    @classmethod
    def _delete(cls, identifier: str, where: Where) -> None:
        s3_backends[where.account_id]["aws"].delete_bucket_policy(identifier)


class TopicPolicyResource(_Resource, CloudFormationModel):
    """AWS::SNS::TopicPolicy: one document for several topics."""

    attribute_names = ("Id",)

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::SNS::TopicPolicy"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], where: Where) -> Self:
        document = json.dumps(properties["PolicyDocument"])
        for topic in properties["Topics"]:
            _set_topic_policy(topic, document, where)
        identifier = "|".join(properties["Topics"])
        return cls(identifier, {"Id": identifier})

    @classmethod
    def _delete(cls, identifier: str, where: Where) -> None:
        """Nothing, as in CloudFormation: a policy cannot be taken from a topic, which goes next."""


def _schedule(identifier: str, wanted: list[Mapping[str, Any]], where: Where) -> None:
    """The scheduled actions of a scalable target become those that are wanted."""
    resource, dimension, namespace = identifier.split("|")
    target = {"ServiceNamespace": namespace, "ResourceId": resource, "ScalableDimension": dimension}
    service = "application-autoscaling"
    found = call(service, "DescribeScheduledActions", target, where.region)["ScheduledActions"]
    names = {action["ScheduledActionName"] for action in wanted}
    for name in {action["ScheduledActionName"] for action in found} - names:
        call(service, "DeleteScheduledAction", {**target, "ScheduledActionName": name}, where.region)
    shape = input_shape(service, "PutScheduledAction", where.region)
    for action in wanted:
        call(service, "PutScheduledAction", as_request(shape, {**target, **action}), where.region)


def _set_topic_policy(topic: str, document: str, where: Where) -> None:
    request = {"TopicArn": topic, "AttributeName": "Policy", "AttributeValue": document}
    call("sns", "SetTopicAttributes", request, where.region)


def enforceable(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is enforced of a policy: moto would apply a conditional statement as if its condition always held.

    The usual one denies what comes without TLS, and would here deny everything: loopback has none.
    """
    return {**document, "Statement": [each for each in document["Statement"] if "Condition" not in each]}


def _call_endpoint(operation: str, properties: Mapping[str, Any], where: Where) -> None:
    """Each of the two calls takes its own part of the properties."""
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


def _service_linked_role(account_id: str, namespace: str) -> str:
    """The role that the service makes for itself when a scalable target names none."""
    name = "AWSServiceRoleForApplicationAutoScaling" + ("_SageMakerEndpoint" if namespace == "sagemaker" else "")
    path = f"aws-service-role/{namespace}.application-autoscaling.amazonaws.com"
    return f"arn:aws:iam::{account_id}:role/{path}/{name}"


def _at_most_63(name: str) -> str:
    """CloudFormation shortens a generated name in the middle, so that its random end stays."""
    return name if len(name) <= 63 else f"{name[:50]}-{name[-12:]}"


def _target_of(properties: Mapping[str, Any]) -> tuple[str, str, str]:
    """(namespace, resource, dimension), from ScalingTargetId or from the three properties."""
    if identifier := properties.get("ScalingTargetId"):
        resource, dimension, namespace = identifier.split("|")
        return namespace, resource, dimension
    return properties["ServiceNamespace"], properties["ResourceId"], properties["ScalableDimension"]
