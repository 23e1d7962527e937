"""Target tracking on invocations per instance, with the recommendation's numbers and no others."""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_applicationautoscaling as scaling
from constructs import Construct

from stacks.workload_endpoint import VARIANT, WorkloadEndpoint
from workloads import Autoscaling

# An instance takes minutes to serve: by then the metric of the larger fleet shows whether one more is needed.
SCALE_OUT_COOLDOWN = Duration.minutes(5)
# Longer than the dip between two waves: an instance too many costs cents, one too few the objective.
SCALE_IN_COOLDOWN = Duration.minutes(10)


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointScalingProps:
    endpoint: WorkloadEndpoint
    autoscaling: Autoscaling


class EndpointScaling(Construct):
    """L1: the L2 would add a role, where SageMaker's service-linked one is used anyway."""

    def __init__(self, scope: Construct, id: str, props: EndpointScalingProps) -> None:
        super().__init__(scope, id)
        target = scaling.CfnScalableTarget(
            self,
            "Target",
            service_namespace="sagemaker",
            scalable_dimension="sagemaker:variant:DesiredInstanceCount",
            resource_id=f"endpoint/{props.endpoint.endpoint_name}/variant/{VARIANT}",
            min_capacity=props.autoscaling.min_capacity,
            max_capacity=props.autoscaling.max_capacity,
        )
        scaling.CfnScalingPolicy(
            self,
            "Policy",
            policy_name="InvocationsPerInstance",
            policy_type="TargetTrackingScaling",
            scaling_target_id=target.ref,
            target_tracking_scaling_policy_configuration=_tracking(props.autoscaling.target_invocations_per_instance),
        )


def _tracking(
    invocations_per_minute: float,
) -> scaling.CfnScalingPolicy.TargetTrackingScalingPolicyConfigurationProperty:
    return scaling.CfnScalingPolicy.TargetTrackingScalingPolicyConfigurationProperty(
        predefined_metric_specification=scaling.CfnScalingPolicy.PredefinedMetricSpecificationProperty(
            predefined_metric_type="SageMakerVariantInvocationsPerInstance"
        ),
        target_value=invocations_per_minute,
        scale_out_cooldown=SCALE_OUT_COOLDOWN.to_seconds(),
        scale_in_cooldown=SCALE_IN_COOLDOWN.to_seconds(),
    )
