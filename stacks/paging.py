"""Whom a workload wakes: one alarm over those that matter, and one topic that it speaks to.

Any hosting's alarms will do. Who listens is not known here: subscribe to the topic.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import Aws, RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

CLOUDWATCH = "cloudwatch.amazonaws.com"


@dataclass(frozen=True, kw_only=True, slots=True)
class PagingProps:
    workload: str
    alarms: Sequence[cloudwatch.IAlarm]
    """Any one of them wakes somebody."""


class Paging(Construct):
    """`topic` to subscribe to, `alarm` that is in alarm as long as any of the given ones is."""

    def __init__(self, scope: Construct, id: str, props: PagingProps) -> None:
        super().__init__(scope, id)
        self.topic = self._topic(props.workload)
        self.alarm = cloudwatch.CompositeAlarm(
            self,
            "Alarm",
            alarm_rule=cloudwatch.AlarmRule.any_of(*props.alarms),
            alarm_description=f"{props.workload} needs somebody: at least one of its alarms is on.",
        )
        self.alarm.add_alarm_action(actions.SnsAction(self.topic))
        self.alarm.add_ok_action(actions.SnsAction(self.topic))

    def _topic(self, workload: str) -> sns.Topic:
        key = kms.Key(
            self,
            "Key",
            description=f"Encrypts what the alarms of {workload} say.",
            enable_key_rotation=True,
            # It encrypts messages on their way, nothing that is kept.
            removal_policy=RemovalPolicy.DESTROY,
        )
        topic = sns.Topic(self, "Topic", master_key=key, enforce_ssl=True)
        # CloudWatch cannot use SNS's own key, and a topic with a policy of its own has lost the default one.
        ours = {"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
        service = iam.ServicePrincipal(CLOUDWATCH, conditions=ours)
        key.grant(service, "kms:Decrypt", "kms:GenerateDataKey*")
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsOfThisAccount",
                principals=[iam.ServicePrincipal(CLOUDWATCH)],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions=ours,
            )
        )
        return topic
