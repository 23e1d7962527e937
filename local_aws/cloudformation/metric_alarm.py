"""The properties of AWS::CloudWatch::Alarm as the arguments of moto's `put_metric_alarm`. Pure."""

from collections.abc import Mapping
from typing import Any

from moto.cloudwatch.models import Dimension, Metric, MetricDataQuery, MetricStat

# Property of the template → argument of moto.
_ARGUMENTS = {
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
_LISTS = {"dimensions", "alarm_actions", "ok_actions", "insufficient_data_actions"}
_WHOLE = {"evaluation_periods", "datapoints_to_alarm", "period"}


def alarm_arguments(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Everything but the name. Templates may write numbers as strings."""
    arguments: dict[str, Any] = {}
    for key, argument in _ARGUMENTS.items():
        value = properties.get(key, [] if argument in _LISTS else None)
        if value is not None and argument in _WHOLE:
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
