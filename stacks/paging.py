"""Paging: an alarm on what lasts, and for each workload one composite alarm with a topic.

It takes the alarms of any hosting. It does not know who is paged: subscribe to the topic.
"""

from collections.abc import Sequence

from aws_cdk import Aws, RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.grants import acknowledge_to_checkov

CLOUDWATCH = "cloudwatch.amazonaws.com"
THIS_ACCOUNT = {"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
EVALUATION_PERIODS = 5
"""Minutes. An endpoint's update bakes at least as long (`[hosting.update]`), or it would end before an alarm can
tell."""
DATAPOINTS_TO_ALARM = 3


def sustained_alarm(
    scope: Construct, id: str, metric: cloudwatch.IMetric, threshold: float, description: str
) -> cloudwatch.Alarm:
    """Returns an alarm that is on after three minutes of five at `threshold` or above it.

    One slow minute, as while an instance joins, is no incident.
    """
    return cloudwatch.Alarm(
        scope,
        id,
        metric=metric,
        threshold=threshold,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        evaluation_periods=EVALUATION_PERIODS,
        datapoints_to_alarm=DATAPOINTS_TO_ALARM,
        # Without traffic nothing is reported, and no objective is broken.
        treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        alarm_description=description,
    )


class Paging(Construct):
    """`topic` to subscribe to, and `alarm`, which is on as long as any of the given alarms is."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        workload: str,
        alarms: Sequence[cloudwatch.IAlarm],
        own_key: bool = False,
    ) -> None:
        super().__init__(scope, id)
        self._own_key, self._workload = own_key, workload
        self.topic = self._topic()
        self.alarm = cloudwatch.CompositeAlarm(
            self,
            "Alarm",
            alarm_rule=cloudwatch.AlarmRule.any_of(*alarms),
            alarm_description=f"{workload} needs somebody: at least one of its alarms is on.",
        )
        self.alarm.add_alarm_action(actions.SnsAction(self.topic))
        self.alarm.add_ok_action(actions.SnsAction(self.topic))

    def _topic(self) -> sns.Topic:
        topic = sns.Topic(
            self, "Topic", master_key=self._key(self._workload) if self._own_key else None, enforce_ssl=True
        )
        if not self._own_key:
            # CloudWatch cannot use the key that AWS keeps for SNS, so it is one of ours or none.
            acknowledge_to_checkov(
                topic, "CKV_AWS_26", "It tells of alarms, nothing of users; hosting.kms_key_arn adds a key."
            )
        # A topic with a policy of its own has lost the default one.
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsOfThisAccount",
                principals=[iam.ServicePrincipal(CLOUDWATCH)],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions=THIS_ACCOUNT,
            )
        )
        return topic

    def _key(self, workload: str) -> kms.Key:
        key = kms.Key(
            self,
            "Key",
            description=f"Encrypts what the alarms of {workload} say.",
            enable_key_rotation=True,
            # It encrypts messages in transit; no stored data depends on it.
            removal_policy=RemovalPolicy.DESTROY,
        )
        service = iam.ServicePrincipal(CLOUDWATCH, conditions=THIS_ACCOUNT)
        key.grant(service, "kms:Decrypt", "kms:GenerateDataKey*")
        return key
