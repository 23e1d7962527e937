"""CloudFormation resource types made by classes of ours: alarms, repositories, and the policies of buckets and topics.

A class that extends moto's `CloudFormationModel` registers itself by its type; where moto has one for the same type,
the later definition, ours, wins. CloudFormation's Ref is `physical_resource_id`. `register` adds the types of
`api_types` and `recorded`, which are rows of a table and no classes. Policies are kept and described whole; the
statements of a bucket's policy that have no condition are enforced.
"""

import json
from collections.abc import Mapping
from typing import Any, Self

from moto.cloudformation.parsing import get_model_map
from moto.cloudwatch.models import (
    CloudWatchBackend,
    Dimension,
    Metric,
    MetricDataQuery,
    MetricStat,
    cloudwatch_backends,
)
from moto.core.common_models import CloudFormationModel
from moto.ecr.models import Repository, ecr_backends
from moto.iam.access_control import IAMPolicy
from moto.s3.models import s3_backends

from local_aws.cloudformation import endpoint_types, role_type  # noqa: F401  their classes register themselves
from local_aws.cloudformation.api_types import API_TYPES
from local_aws.cloudformation.recorded import RECORDED_TYPES
from local_aws.cloudformation.resource import Resource, Where
from local_aws.cloudformation.service_api import call

_ALARM_ARGUMENTS = {
    "Namespace": "namespace",
    "MetricName": "metric_name",
    "ComparisonOperator": "comparison_operator",
    "EvaluationPeriods": "evaluation_periods",
    "DatapointsToAlarm": "datapoints_to_alarm",
    "Period": "period",
    "Threshold": "threshold",
    "Statistic": "statistic",
    "ExtendedStatistic": "extended_statistic",
    "AlarmDescription": "description",
    "Dimensions": "dimensions",
    "AlarmActions": "alarm_actions",
    "OKActions": "ok_actions",
    "InsufficientDataActions": "insufficient_data_actions",
    "Unit": "unit",
    "ActionsEnabled": "actions_enabled",
    "TreatMissingData": "treat_missing_data",
    "EvaluateLowSampleCountPercentile": "evaluate_low_sample_count_percentile",
    "ThresholdMetricId": "threshold_metric_id",
    "Tags": "tags",
}
"""Arguments of moto's `put_metric_alarm` by property of the template."""
_ALARM_LISTS = {"dimensions", "alarm_actions", "ok_actions", "insufficient_data_actions"}
_ALARM_INTEGERS = {"evaluation_periods", "datapoints_to_alarm", "period"}


def register() -> None:
    """Makes the rows of the tables known to moto, before the first stack. Calling it again changes nothing."""
    models: dict[str, Any] = get_model_map()
    models.update({kind.name: kind for kind in API_TYPES})
    models.update({kind.name: kind for kind in RECORDED_TYPES})


class AlarmResource(Resource, CloudFormationModel):
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


class RepositoryResource(Repository, CloudFormationModel):
    """AWS::ECR::Repository. A name that CloudFormation makes up is in lower case, as a repository's has to be."""

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
        name = original_resource.name  # another one would be another repository, which the schema tells beforehand
        return super().update_from_cloudformation_json(
            original_resource, name, cloudformation_json, account_id, region_name
        )


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
        """Does nothing, as in CloudFormation: a topic always has a policy, and the topic itself is deleted next."""


def _set_topic_policy(topic: str, document: str, where: Where) -> None:
    request = {"TopicArn": topic, "AttributeName": "Policy", "AttributeValue": document}
    call("sns", "SetTopicAttributes", request, where.region)


def enforceable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the policy without conditional statements, which moto would apply as if their conditions always held.

    The usual one denies requests without TLS, and would deny every request here, because loopback has none.
    """
    return {**document, "Statement": [each for each in document["Statement"] if "Condition" not in each]}


def alarm_arguments(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Turns an alarm's properties into moto's arguments, without the name. Templates may write numbers as strings."""
    arguments: dict[str, Any] = {}
    for key, argument in _ALARM_ARGUMENTS.items():
        value = properties.get(key, [] if argument in _ALARM_LISTS else None)
        if value is not None and argument in _ALARM_INTEGERS:
            value = int(value)
        arguments[argument] = float(value) if argument == "threshold" and value is not None else value
    arguments["actions_enabled"] = properties.get("ActionsEnabled", True) in (True, "true")
    arguments["metric_data_queries"] = [_query(item) for item in properties.get("Metrics", [])]
    return arguments


def _query(item: Mapping[str, Any]) -> MetricDataQuery:
    stat = item.get("MetricStat")
    return MetricDataQuery(
        query_id=item["Id"],
        label=item.get("Label", ""),
        period=item.get("Period"),  # type: ignore[arg-type]  # moto's types say str for what may be absent
        return_data=item.get("ReturnData", True),
        expression=item.get("Expression"),
        metric_stat=_stat(stat) if stat else None,
    )


def _stat(stat: Mapping[str, Any]) -> MetricStat:
    metric = stat["Metric"]
    dimensions = [Dimension(dimension["Name"], dimension["Value"]) for dimension in metric.get("Dimensions", [])]
    return MetricStat(
        metric=Metric(metric_name=metric["MetricName"], namespace=metric["Namespace"], dimensions=dimensions),
        period=stat["Period"],
        stat=stat["Stat"],
        unit=stat.get("Unit"),  # type: ignore[arg-type]
    )
