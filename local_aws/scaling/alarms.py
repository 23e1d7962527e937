"""Target tracking policies of SageMaker variants, and their alarms, evaluated as CloudWatch documents it.

An alarm is on if M of the N most recent datapoints are beyond the threshold. The evaluation range is longer than N
periods, so that an older datapoint can replace a missing one (5 for N = 3 in AWS's example). With fewer than N, one
beyond the threshold must be at least M periods old, and all later ones beyond it or missing. Sources:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/AlarmThatSendsEmail.html (the action repeats each minute)
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from moto.cloudwatch.models import Alarm

from inference_recommender.simulate.tracking import IN_MINUTES, MINUTE_S, OUT_DATAPOINTS, SCALE_IN_BELOW
from local_aws.cloudwatch import COMPARISONS, LocalCloudWatchBackend, alarm_key, statistic

AlarmState = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]
MORE_PERIODS = 2
PUBLISHED_AFTER_S = 2.0
"""After this delay the last invocations of a period are published: that happens twice a second."""
ACTION_EVERY_S = 60
log = logging.getLogger(__name__)


def state_after(alarm: Alarm, values: Sequence[float | None]) -> AlarmState:
    """Returns the state after these datapoints, oldest first; the present state if they are too young to decide.

    M = N = the alarm's evaluation periods.
    """
    beyond, periods = COMPARISONS[alarm.comparison_operator], alarm.evaluation_periods
    seen = [value for value in values if value is not None]
    if not seen:
        return "INSUFFICIENT_DATA"
    if len(seen) >= periods:
        return "ALARM" if all(beyond(value, alarm.threshold) for value in seen[-periods:]) else "OK"
    run = 0
    for age, value in enumerate(reversed(values), start=1):
        if value is None:
            continue
        if not beyond(value, alarm.threshold):
            break
        run = age
    if run >= periods:
        return "ALARM"
    now: AlarmState = alarm.state_value  # type: ignore[assignment]  # moto calls it a str
    return now if all(beyond(value, alarm.threshold) for value in seen) else "OK"


def _reason(alarm: Alarm, values: Sequence[float | None], state: AlarmState) -> str:
    seen = [value for value in values if value is not None][-alarm.evaluation_periods :]
    if not seen:
        return "Insufficient Data: no datapoints were received in the evaluation range"
    shown = ", ".join(f"{value:.2f}" for value in reversed(seen))
    condition = f"{alarm.comparison_operator} {alarm.threshold:g}"
    return f"{condition}: {state} by the last {len(seen)} datapoints [{shown}]."


@dataclass(slots=True)
class _Evaluation:
    """The ends of the last evaluated period and of that of the last invoked action, and the latest datapoint."""

    evaluated_s: float = 0.0
    invoked_s: float = 0.0
    value: float | None = None


class AlarmWatch:
    """Evaluates alarms at the end of each period, and keeps their latest datapoints."""

    def __init__(self, cloudwatch: LocalCloudWatchBackend) -> None:
        self._cloudwatch = cloudwatch
        self._evaluations: dict[str, _Evaluation] = {}

    def invokes(self, alarm: Alarm, now: float) -> bool:
        """Evaluates the alarm if a period has ended since the last call. Returns whether its action is invoked."""
        last = self._evaluations.setdefault(alarm.name, _Evaluation())
        end = (now - PUBLISHED_AFTER_S) // alarm.period * alarm.period
        if end <= last.evaluated_s:
            return False
        last.evaluated_s = end
        values = self._values(alarm, int(end))
        last.value = next((each for each in reversed(values) if each is not None), None)
        before, state = alarm.state_value, state_after(alarm, values)
        if state != before:
            alarm.update_state(_reason(alarm, values, state), "{}", state)
            log.info(f"alarm {alarm.name} is {state}")
        if state != "ALARM" or (before == "ALARM" and end - last.invoked_s < ACTION_EVERY_S):
            return False
        last.invoked_s = end
        return alarm.actions_enabled

    def latest(self, alarm: Alarm) -> float | None:
        """Returns the latest datapoint that the alarm was evaluated on."""
        return self._evaluations[alarm.name].value

    def _values(self, alarm: Alarm, end: int) -> list[float | None]:
        start = end - (alarm.evaluation_periods + MORE_PERIODS) * alarm.period
        found = self._cloudwatch.by_period(alarm_key(alarm), start, end, alarm.period, alarm.unit)
        seconds = range(start, end, alarm.period)
        return [statistic(alarm.statistic, found[each]) if each in found else None for each in seconds]


NAMESPACE, DIMENSION = "sagemaker", "sagemaker:variant:DesiredInstanceCount"
_PREDEFINED: Mapping[str, tuple[str, str, int]] = {
    "SageMakerVariantInvocationsPerInstance": ("InvocationsPerInstance", "Sum", MINUTE_S),
    "SageMakerVariantConcurrentRequestsPerModelHighResolution": ("ConcurrentRequestsPerModel", "Average", 10),
}


def tracking_alarms(resource_id: str, configuration: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the high and the low alarm of target tracking, as moto's `put_metric_alarm` takes them.

    Raises NotImplementedError for an unsupported metric.
    """
    metric, target = _metric(resource_id, configuration), float(configuration["TargetValue"])
    high = {"comparison_operator": "GreaterThanThreshold", "threshold": target, "evaluation_periods": OUT_DATAPOINTS}
    low = {"comparison_operator": "LessThanThreshold", "threshold": target * SCALE_IN_BELOW}
    low["evaluation_periods"] = IN_MINUTES * MINUTE_S // metric["period"]
    return {"AlarmHigh": metric | high, "AlarmLow": metric | low}


def variant_of(resource_id: str) -> tuple[str, str]:
    """Returns endpoint and variant of a resource id."""
    _, endpoint, _, variant = resource_id.split("/")
    return endpoint, variant


def _metric(resource_id: str, configuration: Mapping[str, Any]) -> dict[str, Any]:
    if (custom := configuration.get("CustomizedMetricSpecification")) is not None:
        if "MetricName" not in custom:
            raise NotImplementedError("a policy on a metric that is computed from others")
        return {
            "namespace": custom["Namespace"],
            "metric_name": custom["MetricName"],
            "dimensions": custom.get("Dimensions", []),
            "statistic": custom["Statistic"],
            "period": MINUTE_S,
            "unit": custom.get("Unit"),
        }
    kind = configuration["PredefinedMetricSpecification"]["PredefinedMetricType"]
    if kind not in _PREDEFINED:
        raise NotImplementedError(f"a policy of an endpoint's variant on {kind}")
    name, statistic, period_s = _PREDEFINED[kind]
    names = zip(("EndpointName", "VariantName"), variant_of(resource_id), strict=True)
    dimensions = [{"Name": name, "Value": value} for name, value in names]
    metric = {"namespace": "AWS/SageMaker", "metric_name": name, "dimensions": dimensions}
    return {**metric, "statistic": statistic, "period": period_s}
