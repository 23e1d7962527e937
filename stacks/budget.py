"""A stage's monthly budget for all of its stacks, found by a cost allocation tag. It notifies and stops nothing.

The tag must be activated once for an organisation; until then AWS counts 0.
"""

from collections.abc import Mapping

from aws_cdk import CfnOutput, Environment, Stack
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.context import Stage
from stacks.grants import acknowledge_to_checkov, let_publish

NAME = "BudgetStack"
STAGE_TAG = "TransformersStage"
WORKLOAD_TAG = "TransformersWorkload"
NOTIFICATIONS = {"ACTUAL": 80, "FORECASTED": 100}
"""Per cent of the budget at which a message is sent, for the actual and for the forecast costs."""


def cost_tags(stage: Stage, workload: str | None = None) -> Mapping[str, str]:
    """Returns the tags of a stack of the stage; `workload` is None for what all share."""
    return {STAGE_TAG: stage} | ({WORKLOAD_TAG: workload} if workload else {})


class BudgetStack(Stack):
    """Has the output BudgetTopicArn, to subscribe to."""

    def __init__(
        self, scope: Construct, id: str, *, stage: Stage, limit_usd: float, environment: Environment | None = None
    ) -> None:
        tags = dict(cost_tags(stage))
        super().__init__(scope, id, env=environment, description=f"The budget of {stage}.", tags=tags)
        topic = sns.Topic(self, "Topic", enforce_ssl=True)
        acknowledge_to_checkov(topic, "CKV_AWS_26", "Messages hold only a sum of money. Budgets needs no KMS key.")
        let_publish(topic, "budgets.amazonaws.com", "BudgetsOfThisAccount")
        budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=self.stack_name,
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=limit_usd, unit="USD"),
                cost_filters={"TagKeyValue": [f"user:{STAGE_TAG}${stage}"]},
            ),
            notifications_with_subscribers=[
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        comparison_operator="GREATER_THAN",
                        notification_type=kind,
                        threshold=percent,
                        threshold_type="PERCENTAGE",
                    ),
                    subscribers=[
                        budgets.CfnBudget.SubscriberProperty(subscription_type="SNS", address=topic.topic_arn)
                    ],
                )
                for kind, percent in NOTIFICATIONS.items()
            ],
        )
        CfnOutput(self, "BudgetTopicArn", value=topic.topic_arn)
