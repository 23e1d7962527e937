"""Target tracking of an endpoint, with the recommendation's numbers and the workload's rules.

Of two policies, one is enough to add instances, and both must agree to remove some.
"""

from collections.abc import Sequence

from aws_cdk import aws_applicationautoscaling as scaling
from constructs import Construct

from stacks.endpoint.metrics import VARIANT
from workloads import Autoscaling, EndpointScalingRules, ScheduledMinimum

INVOCATIONS = "SageMakerVariantInvocationsPerInstance"
CONCURRENCY = "SageMakerVariantConcurrentRequestsPerModelHighResolution"


class EndpointScaling(Construct):
    """Uses L1: the L2 would add a role although SageMaker's service-linked one is used."""

    def __init__(
        self, scope: Construct, id: str, *, endpoint_name: str, autoscaling: Autoscaling, rules: EndpointScalingRules
    ) -> None:
        super().__init__(scope, id)
        self._rules, self._autoscaling = rules, autoscaling
        self._target = scaling.CfnScalableTarget(
            self,
            "Target",
            service_namespace="sagemaker",
            scalable_dimension="sagemaker:variant:DesiredInstanceCount",
            resource_id=f"endpoint/{endpoint_name}/variant/{VARIANT}",
            min_capacity=autoscaling.min_capacity,
            max_capacity=autoscaling.max_capacity,
            scheduled_actions=scheduled_actions((*rules.scheduled_minimums, *autoscaling.scheduled_minimums)),
        )
        self._track("Policy", "InvocationsPerInstance", INVOCATIONS, autoscaling.target_invocations_per_instance)
        if (requests := rules.concurrent_requests_per_instance) is not None:
            self._track("ConcurrencyPolicy", "ConcurrentRequestsPerInstance", CONCURRENCY, requests)

    def _track(self, id: str, name: str, metric: str, value: float) -> None:
        rules, chosen = self._rules, self._autoscaling
        out_s, in_s = chosen.scale_out_cooldown_s, chosen.scale_in_cooldown_s
        scaling.CfnScalingPolicy(
            self,
            id,
            policy_name=name,
            policy_type="TargetTrackingScaling",
            scaling_target_id=self._target.ref,
            target_tracking_scaling_policy_configuration=(
                scaling.CfnScalingPolicy.TargetTrackingScalingPolicyConfigurationProperty(
                    predefined_metric_specification=scaling.CfnScalingPolicy.PredefinedMetricSpecificationProperty(
                        predefined_metric_type=metric
                    ),
                    target_value=value,
                    scale_out_cooldown=rules.scale_out_cooldown_s if out_s is None else out_s,
                    scale_in_cooldown=rules.scale_in_cooldown_s if in_s is None else in_s,
                    disable_scale_in=None if rules.scale_in else True,
                )
            ),
        )


def scheduled_actions(
    minimums: Sequence[ScheduledMinimum],
) -> list[scaling.CfnScalableTarget.ScheduledActionProperty] | None:
    """Returns an action for each minimum, or None where there is none."""
    return [
        scaling.CfnScalableTarget.ScheduledActionProperty(
            scheduled_action_name=f"Minimum{number}",
            schedule=minimum.schedule,
            timezone=minimum.timezone,
            scalable_target_action=scaling.CfnScalableTarget.ScalableTargetActionProperty(
                min_capacity=minimum.min_capacity
            ),
        )
        for number, minimum in enumerate(minimums)
    ] or None
