"""A target tracking policy of a SageMaker variant as Application Auto Scaling documents it. Pure.

It reads a policy's configuration, says which two alarms the service makes for it, and how many instances the policy
asks for. Written from AWS's documentation; the simulation in `inference_recommender` has its own, and neither imports
the other, so that a run of this account is evidence about the simulation.

- The metric is SageMaker's; 1 / (active instances) is sent with each invocation:
  https://docs.aws.amazon.com/sagemaker/latest/dg/monitoring-cloudwatch.html
- Capacity is proportional to the metric, rounded up so that neither too little is added nor too much removed; scale-in
  is more gradual, "when utilization is far enough below the target value (usually more than 10% lower)":
  https://docs.aws.amazon.com/autoscaling/application/userguide/target-tracking-scaling-policy-overview.html
- Cooldowns are 300 s for endpoint variants where the policy names none (same page).
- The numbers of datapoints, 3 of a minute and 15 of a minute, are those of the alarms that the service makes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from local_aws.scaling.alarms import Condition

NAMESPACE, DIMENSION = "sagemaker", "sagemaker:variant:DesiredInstanceCount"
HIGH_PERIODS = 3
LOW_MINUTES = 15
LOW_SHARE = 0.9
"""The low alarm's threshold as a share of the target value."""
DEFAULT_COOLDOWN_S = 300
MINUTE_S = 60
_PREDEFINED: Mapping[str, tuple[str, str, int]] = {
    "SageMakerVariantInvocationsPerInstance": ("InvocationsPerInstance", "Sum", MINUTE_S),
    "SageMakerVariantConcurrentRequestsPerModelHighResolution": ("ConcurrentRequestsPerModel", "Average", 10),
}
"""Metric, statistic and period in seconds of AWS/SageMaker, by predefined type."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    statistic: str
    period_s: int
    unit: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetTracking:
    metric: Metric
    target: float
    scale_out_cooldown_s: float
    scale_in_cooldown_s: float
    scale_in: bool

    @property
    def high(self) -> Condition:
        return Condition(comparison="GreaterThanThreshold", threshold=self.target, periods=HIGH_PERIODS)

    @property
    def low(self) -> Condition:
        periods = LOW_MINUTES * MINUTE_S // self.metric.period_s
        return Condition(comparison="LessThanThreshold", threshold=self.target * LOW_SHARE, periods=periods)

    def wanted(self, instances: int, value: float) -> int:
        """Returns how many instances bring `value`, which `instances` share, to the target value; at least one."""
        exact = instances * value / self.target
        nearest = round(exact)
        return max(nearest if math.isclose(exact, nearest, rel_tol=1e-9) else math.ceil(exact), 1)


def target_tracking(resource_id: str, configuration: Mapping[str, Any]) -> TargetTracking:
    """Reads a TargetTrackingScalingPolicyConfiguration. Raises NotImplementedError for a metric that is not read here.

    `resource_id` is endpoint/NAME/variant/NAME.
    """
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


def _metric(resource_id: str, configuration: Mapping[str, Any]) -> Metric:
    if (custom := configuration.get("CustomizedMetricSpecification")) is not None:
        if "MetricName" not in custom:
            raise NotImplementedError("a policy on a metric that is computed from others")
        return Metric(
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
    return Metric(namespace="AWS/SageMaker", name=name, dimensions=dimensions, statistic=statistic, period_s=period_s)
