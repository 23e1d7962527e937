"""Policies of buckets and topics: kept whole and told whole. Of a bucket's, what has no condition is enforced."""

import json
from collections.abc import Mapping
from typing import Any, Self

from moto.core.common_models import CloudFormationModel
from moto.iam.access_control import IAMPolicy
from moto.s3.models import s3_backends

from local_aws.cloudformation.resource import Resource, Where
from local_aws.cloudformation.service_api import call


class BucketPolicyResource(Resource, CloudFormationModel):
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


class TopicPolicyResource(Resource, CloudFormationModel):
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


def _set_topic_policy(topic: str, document: str, where: Where) -> None:
    request = {"TopicArn": topic, "AttributeName": "Policy", "AttributeValue": document}
    call("sns", "SetTopicAttributes", request, where.region)


def enforceable(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is enforced of a policy: moto would apply a conditional statement as if its condition always held.

    The usual one denies what comes without TLS, and would here deny everything: loopback has none.
    """
    return {**document, "Statement": [each for each in document["Statement"] if "Condition" not in each]}
