"""Widgets that dashboards of endpoints, services and batches share."""

from collections.abc import Sequence
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from workloads import Candidate

HOURS_PER_DAY = 24
NOT_MEASURED = "there is no recommendation yet."


def limit_line(label: str, value: float) -> cloudwatch.HorizontalAnnotation:
    return cloudwatch.HorizontalAnnotation(value=value, label=label)


def graph(
    title: str,
    *metrics: cloudwatch.IMetric,
    limits: Sequence[cloudwatch.HorizontalAnnotation] = (),
    right: Sequence[cloudwatch.IMetric] = (),
    **properties: Any,
) -> cloudwatch.GraphWidget:
    """Returns a graph as wide as half a row. `properties` are further ones of `GraphWidget`."""
    left, above = list(metrics), list(limits)
    return cloudwatch.GraphWidget(
        title=title, left=left, left_annotations=above, right=[*right], width=12, height=6, **properties
    )


def cost_per_day(
    recommended: Candidate | None, noun: str, count: cloudwatch.IMetric
) -> tuple[cloudwatch.MathExpression, cloudwatch.HorizontalAnnotation] | None:
    """Returns the recommendation's cost at the peak, scaled by the number of `noun`, and its estimate as a limit.

    `count` counts the instances or tasks. Returns None if the cost is unknown.
    """
    if recommended is None or recommended.cost_per_hour_usd is None or recommended.instance_count is None:
        return None
    per_hour, estimate = recommended.cost_per_hour_usd, recommended.cost_per_hour_usd * HOURS_PER_DAY
    cost = cloudwatch.MathExpression(
        expression=f"{noun} * {per_hour!r} / {recommended.instance_count} * {HOURS_PER_DAY}",
        using_metrics={noun: count},
        label="USD per day",
        period=Duration.minutes(1),
    )
    return cost, limit_line(f"The recommendation's estimate, at the peak: {estimate:,.2f}", estimate)


def cost_widget(
    recommended: Candidate | None, noun: str, count: cloudwatch.IMetric, title: str, *right: cloudwatch.IMetric
) -> cloudwatch.GraphWidget | cloudwatch.TextWidget:
    """Returns the graph of `cost_per_day`, or the reason why the cost is unknown."""
    if (known := cost_per_day(recommended, noun, count)) is None:
        reason = (recommended and recommended.cost_reason) or NOT_MEASURED
        return cloudwatch.TextWidget(markdown=f"**Cost per day** is not known: {reason}", width=12, height=6)
    cost, estimate = known
    return graph(title, cost, limits=[estimate], right=right)
