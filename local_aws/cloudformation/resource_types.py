"""CloudFormation types of S3, KMS, Logs, CloudWatch, SNS and ECR, for which moto keeps too few properties or changes.

Policies are stored and described whole. Of a bucket's policy, the statements without a condition are enforced.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Self

from moto.core.common_models import CloudFormationModel
from moto.ecr.models import Repository, ecr_backends
from moto.iam.access_control import IAMPolicy
from moto.logs.models import logs_backends
from moto.s3.models import s3_backends

from local_aws.cloudformation import role_type, sagemaker_types  # noqa: F401  their classes register themselves
from local_aws.cloudformation.resource import Resource, StackScope
from local_aws.cloudformation.service_api import call, call_with


class BucketResource(Resource, CloudFormationModel):
    """AWS::S3::Bucket. Server access logging is left out, because nothing writes such logs here."""

    attribute_names = ("Arn", "DomainName", "RegionalDomainName")

    @staticmethod
    def cloudformation_name_type() -> str:
        return "BucketName"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::S3::Bucket"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        if name not in s3_backends[scope.account_id]["aws"].buckets:
            call("s3", "CreateBucket", _bucket_request(name, properties, scope), scope.region)
        for operation, parameter, settings in _bucket_settings(properties):
            call_with("s3", operation, {"Bucket": name, parameter: settings}, scope.region)
        attributes = {
            "Arn": f"arn:aws:s3:::{name}",
            "DomainName": f"{name}.s3.amazonaws.com",
            "RegionalDomainName": f"{name}.s3.{scope.region}.amazonaws.com",
        }
        return cls(name, attributes)

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        call("s3", "DeleteBucket", {"Bucket": identifier}, scope.region)


def _bucket_request(name: str, properties: Mapping[str, Any], scope: StackScope) -> dict[str, Any]:
    request: dict[str, Any] = {"Bucket": name}
    if scope.region != "us-east-1":
        request["CreateBucketConfiguration"] = {"LocationConstraint": scope.region}
    if access := properties.get("AccessControl"):  # LogDeliveryWrite is log-delivery-write in the API
        request["ACL"] = re.sub("(?<!^)(?=[A-Z])", "-", access).lower()
    return request


def _bucket_settings(properties: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """Returns the operation, its parameter and the value of each setting."""
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
    """Turns the template's flat days into the API's nested ones."""
    made: dict[str, Any] = {"Status": rule["Status"], "Filter": {"Prefix": rule.get("Prefix", "")}}
    if "Id" in rule:
        made["ID"] = rule["Id"]
    if "ExpirationInDays" in rule:
        made["Expiration"] = {"Days": rule["ExpirationInDays"]}
    same = ("NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload")
    return made | {name: rule[name] for name in same if name in rule}


class BucketPolicyResource(Resource, CloudFormationModel):
    """AWS::S3::BucketPolicy: its Ref is the bucket's name."""

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::S3::BucketPolicy"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        document = properties["PolicyDocument"]
        s3 = s3_backends[scope.account_id]["aws"]
        s3.put_bucket_policy(properties["Bucket"], json.dumps(document).encode())
        bucket: Any = s3.get_bucket(properties["Bucket"])
        bucket.get_permission = IAMPolicy(json.dumps(_enforceable(document))).is_action_permitted
        return cls(properties["Bucket"], {})

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        s3_backends[scope.account_id]["aws"].delete_bucket_policy(identifier)


def _enforceable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the policy without conditional statements, whose conditions moto ignores.

    The usual one denies requests without TLS, and would deny every request on loopback.
    """
    return {**document, "Statement": [each for each in document["Statement"] if "Condition" not in each]}


class KeyResource(Resource, CloudFormationModel):
    """AWS::KMS::Key."""

    attribute_names = ("Arn", "KeyId")

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::KMS::Key"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        renames = {"KeyPolicy": "Policy"}
        made = call_with("kms", "CreateKey", properties, scope.region, renames, partial=True)["KeyMetadata"]
        key = cls(made["KeyId"], {"Arn": made["Arn"], "KeyId": made["KeyId"]})
        return cls._update(key, properties, scope)

    @classmethod
    def _update(cls, old: Self, properties: Mapping[str, Any], scope: StackScope) -> Self:
        known = {"KeyId": old.identifier}
        if policy := properties.get("KeyPolicy"):
            call_with("kms", "PutKeyPolicy", {**known, "PolicyName": "default", "Policy": policy}, scope.region)
        if properties.get("EnableKeyRotation") in (True, "true"):
            call("kms", "EnableKeyRotation", known, scope.region)
        return old

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        call("kms", "ScheduleKeyDeletion", {"KeyId": identifier, "PendingWindowInDays": 7}, scope.region)


class LogGroupResource(Resource, CloudFormationModel):
    """AWS::Logs::LogGroup."""

    attribute_names = ("Arn",)

    @staticmethod
    def cloudformation_name_type() -> str:
        return "LogGroupName"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::Logs::LogGroup"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        named = {**properties, "LogGroupName": name}
        if name not in logs_backends[scope.account_id][scope.region].groups:
            call_with("logs", "CreateLogGroup", named, scope.region, partial=True)
        if "RetentionInDays" in properties:
            call_with("logs", "PutRetentionPolicy", named, scope.region, partial=True)
        return cls(name, {"Arn": f"arn:aws:logs:{scope.region}:{scope.account_id}:log-group:{name}:*"})

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        call("logs", "DeleteLogGroup", {"logGroupName": identifier}, scope.region)


class AlarmResource(Resource, CloudFormationModel):
    """AWS::CloudWatch::Alarm: its Ref is the alarm's name."""

    attribute_names = ("Arn",)
    _put = "PutMetricAlarm"

    @staticmethod
    def cloudformation_name_type() -> str:
        return "AlarmName"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::CloudWatch::Alarm"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        call_with("cloudwatch", cls._put, {**properties, "AlarmName": name}, scope.region)
        return cls(name, {"Arn": f"arn:aws:cloudwatch:{scope.region}:{scope.account_id}:alarm:{name}"})

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        call("cloudwatch", "DeleteAlarms", {"AlarmNames": [identifier]}, scope.region)


class CompositeAlarmResource(AlarmResource, CloudFormationModel):
    """AWS::CloudWatch::CompositeAlarm."""

    _put = "PutCompositeAlarm"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::CloudWatch::CompositeAlarm"


class TopicResource(Resource, CloudFormationModel):
    """AWS::SNS::Topic."""

    attribute_names = ("TopicArn", "TopicName")

    @staticmethod
    def cloudformation_name_type() -> str:
        return "TopicName"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::SNS::Topic"

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        topic = call("sns", "CreateTopic", {"Name": name}, scope.region)["TopicArn"]
        for attribute in ("DisplayName", "KmsMasterKeyId", "SignatureVersion", "TracingConfig"):
            if attribute in properties:
                _set_topic_attribute(topic, attribute, str(properties[attribute]), scope)
        return cls(topic, {"TopicArn": topic, "TopicName": name})

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        call("sns", "DeleteTopic", {"TopicArn": identifier}, scope.region)


class TopicPolicyResource(Resource, CloudFormationModel):
    """AWS::SNS::TopicPolicy: one document for several topics."""

    attribute_names = ("Id",)

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::SNS::TopicPolicy"

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


class RepositoryResource(Repository, CloudFormationModel):
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
        cls, original_resource: Any, new_resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> Repository:
        return super().update_from_cloudformation_json(
            original_resource, original_resource.name, cloudformation_json, account_id, region_name
        )
