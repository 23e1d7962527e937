"""An alarm on what lasts: three bad minutes of five. One slow minute while an instance joins is no incident.

An endpoint's update bakes at least as long (`[hosting.update]`), or it would be over before an alarm can tell.
"""

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

EVALUATION_PERIODS = 5
DATAPOINTS_TO_ALARM = 3


def sustained_alarm(
    scope: Construct, id: str, metric: cloudwatch.IMetric, threshold: float, description: str
) -> cloudwatch.Alarm:
    """On when the metric is at `threshold` or above it."""
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
