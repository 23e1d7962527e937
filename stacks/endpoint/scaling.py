"""Target tracking of an endpoint, with the recommendation's numbers and the workload's rules.

Of two policies, one is enough to add instances, and both must agree to remove some.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from aws_cdk import aws_applicationautoscaling as scaling
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.deployment import problems_of_size, sized
from stacks.endpoint.metrics import NamedEndpoint
from stacks.workload_stack import refuse_arguments
from workloads import Autoscaling, EndpointScalingRules, Recommendation, ScheduledMinimum

Tracking = scaling.CfnScalingPolicy.TargetTrackingScalingPolicyConfigurationProperty
INVOCATIONS = "SageMakerVariantInvocationsPerInstance"
CONCURRENCY = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
DEFAULT_RULES = EndpointScalingRules()


class RecommendedScaling(Construct):
    """Autoscaling of an endpoint's variant with the numbers of a recommendation.

    `endpoint` is one imported with `RecommendedEndpoint.from_endpoint_name`: a `RecommendedEndpoint` has its own
    autoscaling. The fleet has at least `min_instances`.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        endpoint: NamedEndpoint,
        recommendation: Recommendation,
        rules: EndpointScalingRules = DEFAULT_RULES,
        min_instances: int = 2,
    ) -> None:
        super().__init__(scope, id)
        refuse_arguments(self, problems_of_size(recommendation, None, recommendation.archive_sha256, autoscaled=True))
        autoscaling = sized(recommendation, None, min_instances).autoscaling
        assert autoscaling is not None
        refuse_arguments(self, (f"rules: {each}" for each in problems_of_minimums(rules, min_instances, autoscaling)))
        resource_id = f"endpoint/{endpoint.endpoint_name}/variant/{endpoint.variant_name}"
        minimums = (*rules.scheduled_minimums, *autoscaling.scheduled_minimums)
        low, high = autoscaling.min_capacity, autoscaling.max_capacity
        target = scalable_target(self, "sagemaker:variant:DesiredInstanceCount", resource_id, low, high, minimums)
        per_instance = autoscaling.target_invocations_per_instance
        tracked = [("Policy", "InvocationsPerInstance", INVOCATIONS, per_instance)]
        if (requests := rules.concurrent_requests_per_instance) is not None:
            tracked.append(("ConcurrencyPolicy", "ConcurrentRequestsPerInstance", CONCURRENCY, requests))
        for policy_id, name, metric, value in tracked:
            track(
                self,
                policy_id,
                target,
                name,
                predefined_metric_specification=predefined(metric),
                target_value=value,
                disable_scale_in=None if rules.scale_in else True,
                **cooldowns(autoscaling, rules.scale_out_cooldown_s, rules.scale_in_cooldown_s),
            )


def problems_of_minimums(rules: EndpointScalingRules, low: int, autoscaling: Autoscaling) -> Iterator[str]:
    """Yields scheduled minimums outside of the fleet's bounds."""
    for number, minimum in enumerate(rules.scheduled_minimums):
        if not low <= minimum.min_capacity <= autoscaling.max_capacity:
            yield (
                f"scheduled_minimums.{number}.min_capacity: got {minimum.min_capacity}. The fleet has between "
                f"{low} and {autoscaling.max_capacity} instances; choose one of these, or measure for a larger peak."
            )


def scalable_target(
    scope: Construct, dimension: str, resource_id: str, low: int, high: int, minimums: Sequence[ScheduledMinimum] = ()
) -> scaling.CfnScalableTarget:
    """Returns a target as L1: the L2 would add a role although the service-linked one is used."""
    actions = [
        scaling.CfnScalableTarget.ScheduledActionProperty(
            scheduled_action_name=f"Minimum{number}",
            schedule=minimum.schedule,
            timezone=minimum.timezone,
            scalable_target_action=scaling.CfnScalableTarget.ScalableTargetActionProperty(
                min_capacity=minimum.min_capacity
            ),
        )
        for number, minimum in enumerate(minimums)
    ]
    return scaling.CfnScalableTarget(
        scope,
        "Target",
        service_namespace=dimension.partition(":")[0],
        scalable_dimension=dimension,
        resource_id=resource_id,
        min_capacity=low,
        max_capacity=high,
        scheduled_actions=actions or None,
    )


def cooldowns(autoscaling: Autoscaling, scale_out_s: int, scale_in_s: int) -> dict[str, int]:
    """Returns the cooldowns of a simulated recommendation, and of another one the given ones."""
    out = scale_out_s if autoscaling.scale_out_cooldown_s is None else autoscaling.scale_out_cooldown_s
    back = scale_in_s if autoscaling.scale_in_cooldown_s is None else autoscaling.scale_in_cooldown_s
    return {"scale_out_cooldown": out, "scale_in_cooldown": back}


def track(scope: Construct, id: str, target: scaling.CfnScalableTarget, name: str, **properties: Any) -> None:
    """Adds target tracking."""
    scaling.CfnScalingPolicy(
        scope,
        id,
        policy_name=name,
        policy_type="TargetTrackingScaling",
        scaling_target_id=target.ref,
        target_tracking_scaling_policy_configuration=Tracking(**properties),
    )


def predefined(metric: str) -> scaling.CfnScalingPolicy.PredefinedMetricSpecificationProperty:
    return scaling.CfnScalingPolicy.PredefinedMetricSpecificationProperty(predefined_metric_type=metric)


def customized(
    metric: cloudwatch.Metric, unit: str | None = None
) -> scaling.CfnScalingPolicy.CustomizedMetricSpecificationProperty:
    return scaling.CfnScalingPolicy.CustomizedMetricSpecificationProperty(
        namespace=metric.namespace,
        metric_name=metric.metric_name,
        statistic=metric.statistic,
        unit=unit,
        dimensions=[
            scaling.CfnScalingPolicy.MetricDimensionProperty(name=name, value=value)
            for name, value in (metric.dimensions or {}).items()
        ],
    )
