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
from local_aws.cloudwatch import LocalCloudWatchBackend, metric_key, statistic

AlarmState = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]
MORE_PERIODS = 2
PUBLISHED_AFTER_S = 2.0
"""After this delay the last invocations of a period are published: that happens twice a second."""
ACTION_EVERY_S = 60
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackedMetric:
    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    statistic: str
    period_s: int
    unit: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AlarmCondition:
    """The threshold of an alarm, and the datapoints in a row that must be beyond it: M = N = `periods`."""

    comparison: Literal["GreaterThanThreshold", "LessThanThreshold"]
    threshold: float
    periods: int

    def breached_by(self, value: float) -> bool:
        return value > self.threshold if self.comparison == "GreaterThanThreshold" else value < self.threshold

    def state(self, values: Sequence[float | None], now: AlarmState) -> AlarmState:
        """Returns the state after these datapoints, oldest first; `now` if they are too young to decide."""
        seen = [value for value in values if value is not None]
        if not seen:
            return "INSUFFICIENT_DATA"
        if len(seen) >= self.periods:
            return "ALARM" if all(self.breached_by(value) for value in seen[-self.periods :]) else "OK"
        run = 0
        for age, value in enumerate(reversed(values), start=1):
            if value is None:
                continue
            if not self.breached_by(value):
                break
            run = age
        if run >= self.periods:
            return "ALARM"
        return now if all(self.breached_by(value) for value in seen) else "OK"

    def reason(self, values: Sequence[float | None], state: AlarmState) -> str:
        """Returns the alarm's StateReason."""
        seen = [value for value in values if value is not None][-self.periods :]
        if not seen:
            return "Insufficient Data: no datapoints were received in the evaluation range"
        shown = ", ".join(f"{value:.2f}" for value in reversed(seen))
        return f"{self.comparison} {self.threshold:g}: {state} by the last {len(seen)} datapoints [{shown}]."


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

    def invokes(self, alarm: Alarm, metric: TrackedMetric, condition: AlarmCondition, now: float) -> bool:
        """Evaluates the alarm if a period has ended since the last call. Returns whether its action is invoked."""
        last = self._evaluations.setdefault(alarm.name, _Evaluation())
        end = (now - PUBLISHED_AFTER_S) // metric.period_s * metric.period_s
        if end <= last.evaluated_s:
            return False
        last.evaluated_s = end
        values = self._values(metric, condition.periods + MORE_PERIODS, end)
        last.value = next((each for each in reversed(values) if each is not None), None)
        before: AlarmState = alarm.state_value  # type: ignore[assignment]  # moto calls it a str
        state = condition.state(values, before)
        if state != before:
            alarm.update_state(condition.reason(values, state), "{}", state)
            log.info(f"alarm {alarm.name} is {state}")
        if state != "ALARM" or (before == "ALARM" and end - last.invoked_s < ACTION_EVERY_S):
            return False
        last.invoked_s = end
        return alarm.actions_enabled

    def latest(self, alarm: Alarm) -> float | None:
        """Returns the latest datapoint that the alarm was evaluated on."""
        return self._evaluations[alarm.name].value

    def _values(self, metric: TrackedMetric, periods: int, end: float) -> list[float | None]:
        dimensions = [{"Name": name, "Value": value} for name, value in metric.dimensions]
        start, key = int(end) - periods * metric.period_s, metric_key(metric.namespace, metric.name, dimensions)
        found = self._cloudwatch.by_period(key, start, end, metric.period_s, metric.unit)
        seconds = range(start, int(end), metric.period_s)
        return [statistic(metric.statistic, found[each]) if each in found else None for each in seconds]


NAMESPACE, DIMENSION = "sagemaker", "sagemaker:variant:DesiredInstanceCount"
DEFAULT_COOLDOWN_S = 300
_PREDEFINED: Mapping[str, tuple[str, str, int]] = {
    "SageMakerVariantInvocationsPerInstance": ("InvocationsPerInstance", "Sum", MINUTE_S),
    "SageMakerVariantConcurrentRequestsPerModelHighResolution": ("ConcurrentRequestsPerModel", "Average", 10),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetTracking:
    metric: TrackedMetric
    target: float
    scale_out_cooldown_s: float
    scale_in_cooldown_s: float
    scale_in: bool

    @property
    def high(self) -> AlarmCondition:
        return AlarmCondition(comparison="GreaterThanThreshold", threshold=self.target, periods=OUT_DATAPOINTS)

    @property
    def low(self) -> AlarmCondition:
        periods = IN_MINUTES * MINUTE_S // self.metric.period_s
        return AlarmCondition(comparison="LessThanThreshold", threshold=self.target * SCALE_IN_BELOW, periods=periods)


def target_tracking(resource_id: str, configuration: Mapping[str, Any]) -> TargetTracking:
    """Reads a policy's configuration. Raises NotImplementedError for an unsupported metric."""
    return TargetTracking(
        metric=_metric(resource_id, configuration),
        target=float(configuration["TargetValue"]),
        scale_out_cooldown_s=float(configuration.get("ScaleOutCooldown", DEFAULT_COOLDOWN_S)),
        scale_in_cooldown_s=float(configuration.get("ScaleInCooldown", DEFAULT_COOLDOWN_S)),
        scale_in=not configuration.get("DisableScaleIn", False),
    )


def variant_of(resource_id: str) -> tuple[str, str]:
    """Returns endpoint and variant of a resource id."""
    _, endpoint, _, variant = resource_id.split("/")
    return endpoint, variant


def _metric(resource_id: str, configuration: Mapping[str, Any]) -> TrackedMetric:
    if (custom := configuration.get("CustomizedMetricSpecification")) is not None:
        if "MetricName" not in custom:
            raise NotImplementedError("a policy on a metric that is computed from others")
        return TrackedMetric(
            namespace=custom["Namespace"],
            name=custom["MetricName"],
            dimensions=tuple((each["Name"], each["Value"]) for each in custom.get("Dimensions", ())),
            statistic=custom["Statistic"],
            period_s=MINUTE_S,
            unit=custom.get("Unit"),
        )
    kind = configuration["PredefinedMetricSpecification"]["PredefinedMetricType"]
    if kind not in _PREDEFINED:
        raise NotImplementedError(f"a policy of an endpoint's variant on {kind}")
    name, statistic, period_s = _PREDEFINED[kind]
    endpoint, variant = variant_of(resource_id)
    dimensions = (("EndpointName", endpoint), ("VariantName", variant))
    return TrackedMetric(
        namespace="AWS/SageMaker", name=name, dimensions=dimensions, statistic=statistic, period_s=period_s
    )
