"""Paging: sustained alarms, and for each workload one composite alarm with a topic to subscribe to."""

from collections.abc import Sequence

from aws_cdk import RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from stacks.context import Options
from stacks.grants import THIS_ACCOUNT, acknowledge_to_checkov, let_publish

CLOUDWATCH = "cloudwatch.amazonaws.com"
EVALUATION_PERIODS = 5
"""Minutes. The bake time of an endpoint's update is at least as long."""
DATAPOINTS_TO_ALARM = 3


def sustained_alarm(
    scope: Construct,
    id: str,
    metric: cloudwatch.Metric | cloudwatch.MathExpression,
    threshold: float,
    description: str,
    *,
    name: str | None = None,
) -> cloudwatch.Alarm:
    """Returns an alarm for three minutes of five at or above `threshold`. One slow minute is no incident."""
    is_percentile = isinstance(metric, cloudwatch.Metric) and metric.statistic.startswith("p")
    return cloudwatch.Alarm(
        scope,
        id,
        alarm_name=name,
        metric=metric,
        threshold=threshold,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        evaluation_periods=EVALUATION_PERIODS,
        datapoints_to_alarm=DATAPOINTS_TO_ALARM,
        # Without traffic nothing is reported, and no objective is missed.
        treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        # Of ten requests in a minute, the slowest is the P99.
        evaluate_low_sample_count_percentile="ignore" if is_percentile else None,
        alarm_description=description,
    )


class Paging(Construct):
    """`topic` to subscribe to, and `alarm`, which is in ALARM while any of `alarms` is.

    `own_key` adds a key for the messages, for 1 USD a month. The options name an address to subscribe, or a topic that
    replaces the construct's own.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        workload: str,
        alarms: Sequence[cloudwatch.IAlarm],
        options: Options,
        own_key: bool = False,
    ) -> None:
        super().__init__(scope, id)
        given = options.alarm_topic
        self.topic = sns.Topic.from_topic_arn(self, "Topic", given) if given else self._topic(workload, own_key)
        if options.alarm_email is not None:
            self.topic.add_subscription(subscriptions.EmailSubscription(options.alarm_email))
        self.alarm = cloudwatch.CompositeAlarm(
            self,
            "Alarm",
            alarm_rule=cloudwatch.AlarmRule.any_of(*alarms),
            alarm_description=f"{workload}: at least one alarm is in ALARM. Open the dashboard.",
        )
        self.alarm.add_alarm_action(actions.SnsAction(self.topic))
        self.alarm.add_ok_action(actions.SnsAction(self.topic))

    def _topic(self, workload: str, own_key: bool) -> sns.Topic:
        key = self._key(workload) if own_key else None
        topic = sns.Topic(self, "Topic", master_key=key, enforce_ssl=True)
        if key is None:
            # CloudWatch cannot use AWS's own key for SNS.
            reason = "It holds alarm states and no user data; hosting.kms_key_arn adds a key."
            acknowledge_to_checkov(topic, "CKV_AWS_26", reason)
        let_publish(topic, CLOUDWATCH, "AlarmsOfThisAccount")
        return topic

    def _key(self, workload: str) -> kms.Key:
        key = kms.Key(
            self,
            "Key",
            description=f"Encrypts the alarm messages of {workload}.",
            enable_key_rotation=True,
            # No stored data depends on it.
            removal_policy=RemovalPolicy.DESTROY,
        )
        service = iam.ServicePrincipal(CLOUDWATCH, conditions=THIS_ACCOUNT)
        key.grant(service, "kms:Decrypt", "kms:GenerateDataKey*")
        return key
