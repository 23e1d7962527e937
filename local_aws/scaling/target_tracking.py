"""A target tracking policy of a SageMaker variant, read from its configuration. Pure.

`inference_recommender.simulate.tracking` has the arithmetic, which the simulation shares. The metric is SageMaker's:
https://docs.aws.amazon.com/sagemaker/latest/dg/monitoring-cloudwatch.html
Cooldowns are 300 s for endpoint variants if the policy has none:
https://docs.aws.amazon.com/autoscaling/application/userguide/target-tracking-scaling-policy-overview.html
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inference_recommender.simulate.tracking import IN_MINUTES, MINUTE_S, OUT_DATAPOINTS, SCALE_IN_BELOW
from local_aws.scaling.alarms import AlarmCondition, TrackedMetric

NAMESPACE, DIMENSION = "sagemaker", "sagemaker:variant:DesiredInstanceCount"
DEFAULT_COOLDOWN_S = 300
_PREDEFINED: Mapping[str, tuple[str, str, int]] = {
    "SageMakerVariantInvocationsPerInstance": ("InvocationsPerInstance", "Sum", MINUTE_S),
    "SageMakerVariantConcurrentRequestsPerModelHighResolution": ("ConcurrentRequestsPerModel", "Average", 10),
}
"""Metric, statistic and period in seconds of AWS/SageMaker, by predefined type."""


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
    """Reads a TargetTrackingScalingPolicyConfiguration. Raises NotImplementedError for an unsupported metric.

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
