"""CloudFormation types of S3, KMS, Logs, CloudWatch, SNS, SQS, ECR and IAM, of which moto keeps too little.

Policies are stored and described whole. Of a bucket's policy, the statements without a condition are enforced. moto has
the text of AWS's managed policies; one is added to an account when the first role names it.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Self

from moto.cloudformation.parsing import get_model_map
from moto.ecr.models import Repository, ecr_backends
from moto.iam.access_control import IAMPolicy
from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.iam.models import AWSManagedPolicy, IAMBackend, Role, iam_backends
from moto.logs.models import logs_backends
from moto.s3.models import s3_backends

from local_aws.cloudformation import sagemaker_types  # noqa: F401  its classes register themselves
from local_aws.cloudformation.service_api import Resource, StackScope, call, call_with


class BucketResource(Resource, kind="AWS::S3::Bucket", name="BucketName"):
    """AWS::S3::Bucket. Server access logging is left out, because nothing writes such logs here."""

    deletion = ("s3", "DeleteBucket", "Bucket")

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        if name not in s3_backends[scope.account_id]["aws"].buckets:
            request: dict[str, Any] = {"Bucket": name}
            if scope.region != "us-east-1":
                request["CreateBucketConfiguration"] = {"LocationConstraint": scope.region}
            if access := properties.get("AccessControl"):  # LogDeliveryWrite is log-delivery-write in the API
                request["ACL"] = re.sub("(?<!^)(?=[A-Z])", "-", access).lower()
            call("s3", "CreateBucket", request, scope.region)
        for operation, parameter, settings in _bucket_settings(properties):
            call_with("s3", operation, {"Bucket": name, parameter: settings}, scope.region)
        attributes = {
            "Arn": f"arn:aws:s3:::{name}",
            "DomainName": f"{name}.s3.amazonaws.com",
            "RegionalDomainName": f"{name}.s3.{scope.region}.amazonaws.com",
        }
        return cls(name, attributes)


def _bucket_settings(properties: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = []
    if encryption := properties.get("BucketEncryption"):
        rules = [
            {key.replace("ServerSide", "ApplyServerSide"): each for key, each in rule.items()}
            for rule in encryption["ServerSideEncryptionConfiguration"]
        ]
        found.append(("PutBucketEncryption", "ServerSideEncryptionConfiguration", {"Rules": rules}))
    if lifecycle := properties.get("LifecycleConfiguration"):
        rules = [_lifecycle_rule(rule) for rule in lifecycle["Rules"]]
        found.append(("PutBucketLifecycleConfiguration", "LifecycleConfiguration", {"Rules": rules}))
    if tags := properties.get("Tags"):
        found.append(("PutBucketTagging", "Tagging", {"TagSet": tags}))
    named = {
        "OwnershipControls": "PutBucketOwnershipControls",
        "PublicAccessBlockConfiguration": "PutPublicAccessBlock",
        "VersioningConfiguration": "PutBucketVersioning",
    }
    return found + [(named[name], name, properties[name]) for name in named if name in properties]


def _lifecycle_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"Status": rule["Status"], "Filter": {"Prefix": rule.get("Prefix", "")}}
    if "Id" in rule:
        made["ID"] = rule["Id"]
    if "ExpirationInDays" in rule:
        made["Expiration"] = {"Days": rule["ExpirationInDays"]}
    same = ("NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload")
    return made | {name: rule[name] for name in same if name in rule}


class BucketPolicyResource(Resource, kind="AWS::S3::BucketPolicy"):
    """AWS::S3::BucketPolicy: its Ref is the bucket's name."""

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        document = properties["PolicyDocument"]
        s3 = s3_backends[scope.account_id]["aws"]
        s3.put_bucket_policy(properties["Bucket"], json.dumps(document).encode())
        bucket: Any = s3.get_bucket(properties["Bucket"])
        # moto ignores conditions, and the usual conditional statement denies requests without TLS.
        enforced = [each for each in document["Statement"] if "Condition" not in each]
        bucket.get_permission = IAMPolicy(json.dumps({**document, "Statement": enforced})).is_action_permitted
        return cls(properties["Bucket"], {})

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        s3_backends[scope.account_id]["aws"].delete_bucket_policy(identifier)


class KeyResource(Resource, kind="AWS::KMS::Key"):
    """AWS::KMS::Key."""

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        renames = {"KeyPolicy": "Policy"}
        made = call_with("kms", "CreateKey", properties, scope.region, renames, partial=True)["KeyMetadata"]
        key = cls(made["KeyId"], {"Arn": made["Arn"], "KeyId": made["KeyId"]})
        return cls._update(key, properties, scope)

    @classmethod
    def _update(cls, old: Self, properties: Mapping[str, Any], scope: StackScope) -> Self:
        known = {"KeyId": old.physical_resource_id}
        if policy := properties.get("KeyPolicy"):
            call_with("kms", "PutKeyPolicy", {**known, "PolicyName": "default", "Policy": policy}, scope.region)
        if properties.get("EnableKeyRotation") in (True, "true"):
            call("kms", "EnableKeyRotation", known, scope.region)
        return old

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        call("kms", "ScheduleKeyDeletion", {"KeyId": identifier, "PendingWindowInDays": 7}, scope.region)


class LogGroupResource(Resource, kind="AWS::Logs::LogGroup", name="LogGroupName"):
    """AWS::Logs::LogGroup."""

    deletion = ("logs", "DeleteLogGroup", "logGroupName")

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        named = {**properties, "LogGroupName": name}
        if name not in logs_backends[scope.account_id][scope.region].groups:
            call_with("logs", "CreateLogGroup", named, scope.region, partial=True)
        if "RetentionInDays" in properties:
            call_with("logs", "PutRetentionPolicy", named, scope.region, partial=True)
        return cls(name, {"Arn": f"arn:aws:logs:{scope.region}:{scope.account_id}:log-group:{name}:*"})


class AlarmResource(Resource, kind="AWS::CloudWatch::Alarm", name="AlarmName"):
    """AWS::CloudWatch::Alarm: its Ref is the alarm's name."""

    _put = "PutMetricAlarm"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        call_with("cloudwatch", cls._put, {**properties, "AlarmName": name}, scope.region)
        return cls(name, {"Arn": f"arn:aws:cloudwatch:{scope.region}:{scope.account_id}:alarm:{name}"})

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        call("cloudwatch", "DeleteAlarms", {"AlarmNames": [identifier]}, scope.region)


class CompositeAlarmResource(AlarmResource, kind="AWS::CloudWatch::CompositeAlarm"):
    """AWS::CloudWatch::CompositeAlarm."""

    _put = "PutCompositeAlarm"


class TopicResource(Resource, kind="AWS::SNS::Topic", name="TopicName"):
    """AWS::SNS::Topic."""

    deletion = ("sns", "DeleteTopic", "TopicArn")

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        topic = call("sns", "CreateTopic", {"Name": name}, scope.region)["TopicArn"]
        for attribute in ("DisplayName", "KmsMasterKeyId", "SignatureVersion", "TracingConfig"):
            if attribute in properties:
                _set_topic_attribute(topic, attribute, str(properties[attribute]), scope)
        return cls(topic, {"TopicArn": topic, "TopicName": name})


class TopicPolicyResource(Resource, kind="AWS::SNS::TopicPolicy"):
    """AWS::SNS::TopicPolicy: one document for several topics."""

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        for topic in properties["Topics"]:
            _set_topic_attribute(topic, "Policy", json.dumps(properties["PolicyDocument"]), scope)
        identifier = "|".join(properties["Topics"])
        return cls(identifier, {"Id": identifier})

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        """Does nothing, as in CloudFormation: a topic always has a policy."""


def _set_topic_attribute(topic: str, name: str, value: str, scope: StackScope) -> None:
    request = {"TopicArn": topic, "AttributeName": name, "AttributeValue": value}
    call("sns", "SetTopicAttributes", request, scope.region)


class QueuePolicyResource(Resource, kind="AWS::SQS::QueuePolicy"):
    """AWS::SQS::QueuePolicy: one document for several queues. It is stored and not enforced."""

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        identifier = "|".join(properties["Queues"])
        _set_queue_policies(identifier, json.dumps(properties["PolicyDocument"]), scope)
        return cls(identifier, {"Id": identifier})

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        _set_queue_policies(identifier, "", scope)


def _set_queue_policies(identifier: str, policy: str, scope: StackScope) -> None:
    for queue in identifier.split("|"):
        call("sqs", "SetQueueAttributes", {"QueueUrl": queue, "Attributes": {"Policy": policy}}, scope.region)


class RepositoryResource(Repository):
    """AWS::ECR::Repository. A generated name is in lower case, as a repository's has to be."""

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **more: Any
    ) -> Repository:
        properties = cloudformation_json["Properties"]
        name = properties.get("RepositoryName") or resource_name.lower()
        made = super().create_from_cloudformation_json(name, cloudformation_json, account_id, region_name, **more)
        if text := properties.get("LifecyclePolicy", {}).get("LifecyclePolicyText"):
            ecr_backends[account_id][region_name].put_lifecycle_policy(account_id, name, text)
        return made

    @classmethod
    def update_from_cloudformation_json(
        cls, original_resource: Any, new_resource_name: str, cloudformation_json: Any, *scope: str
    ) -> Repository:
        name = original_resource.name
        return super().update_from_cloudformation_json(original_resource, name, cloudformation_json, *scope)


get_model_map()["AWS::ECR::Repository"] = RepositoryResource  # type: ignore[type-abstract]


OF_AWS = "arn:aws:iam::aws:policy"


class LocalIamBackend(IAMBackend):
    """Attaches AWS's managed policies as well, and simulates a role's policies."""

    def attach_role_policy(self, policy_arn: str, role_name: str) -> None:
        self.know(policy_arn)
        super().attach_role_policy(policy_arn, role_name)

    def know(self, policy_arn: str) -> None:
        """Makes a managed policy of AWS known, where there is one of that name."""
        path, _, name = policy_arn.removeprefix(OF_AWS).rpartition("/")
        data = _of_aws().get(name) if policy_arn.startswith(f"{OF_AWS}/") else None
        if data and data["Path"] == f"{path}/" and policy_arn not in self.managed_policies:
            made = AWSManagedPolicy.from_data(name, self.account_id, self.region_name, data)
            self.managed_policies[policy_arn] = made


class RoleResource(Role):
    """AWS::IAM::Role. Its resources are moto's roles."""

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **more: Any
    ) -> Role:
        properties = _with_texts(cloudformation_json["Properties"])
        definition = {**cloudformation_json, "Properties": properties}
        role: Role = super().create_from_cloudformation_json(resource_name, definition, account_id, region_name, **more)
        for arn in properties.get("ManagedPolicyArns", []):
            iam_backends[account_id]["aws"].attach_role_policy(arn, role.name)
        return role

    @classmethod
    def update_from_cloudformation_json(
        cls, original_resource: Role, new_resource_name: str, cloudformation_json: Any, account_id: str, *_: str
    ) -> Role:
        properties = _with_texts(cloudformation_json["Properties"])
        backend, name = iam_backends[account_id]["aws"], original_resource.name
        backend.update_role(name, properties.get("Description", ""), properties.get("MaxSessionDuration", 3600))
        backend.update_assume_role_policy(name, properties["AssumeRolePolicyDocument"])
        role = backend.get_role(name)
        by_policies = (each for each in backend.inline_policies.values() if name in (each.role_names or []))
        for gone in set(role.policies) - {each.policy_name for each in by_policies}:  # not those of AWS::IAM::Policy
            role.delete_policy(gone)
        for each in properties.get("Policies", []):
            role.put_policy(each["PolicyName"], each["PolicyDocument"])
        wanted = set(properties.get("ManagedPolicyArns", []))
        for arn in set(role.managed_policies) - wanted:
            backend.detach_role_policy(arn, name)
        for arn in sorted(wanted - set(role.managed_policies)):
            backend.attach_role_policy(arn, name)
        return role

    @classmethod
    def delete_from_cloudformation_json(
        cls, resource_name: str, definition: Any, account_id: str, *region: str
    ) -> None:
        backend = iam_backends[account_id]["aws"]
        for arn in list(backend.get_role(resource_name).managed_policies):
            backend.detach_role_policy(arn, resource_name)
        super().delete_from_cloudformation_json(resource_name, definition, account_id, *region)


get_model_map()["AWS::IAM::Role"] = RoleResource  # type: ignore[type-abstract]


@cache
def _of_aws() -> dict[str, Any]:
    policies: dict[str, Any] = json.loads(aws_managed_policies_data)
    return policies


def _with_texts(properties: dict[str, Any]) -> dict[str, Any]:
    policies = [{**each, "PolicyDocument": _text(each["PolicyDocument"])} for each in properties.get("Policies", [])]
    trust = _text(properties["AssumeRolePolicyDocument"])
    return {**properties, "AssumeRolePolicyDocument": trust, **({"Policies": policies} if policies else {})}


def _text(document: Any) -> str:
    return document if isinstance(document, str) else json.dumps(_without_no_value(document), default=str)


def _without_no_value(node: Any) -> Any:
    """Leaves out the elements that AWS::NoValue takes away, which moto keeps as null. CDK's bootstrap has such ones."""
    if isinstance(node, dict):
        return {key: _without_no_value(value) for key, value in node.items() if value is not None}
    return [_without_no_value(each) for each in node if each is not None] if isinstance(node, list) else node
