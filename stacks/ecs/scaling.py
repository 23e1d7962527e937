"""Target tracking of a service's tasks, with the recommendation's numbers.

On Inferentia it tracks invocations per task, which the server reports; on CPU it tracks the CPU.
"""

from aws_cdk import Duration
from aws_cdk import aws_applicationautoscaling as scaling
from constructs import Construct

from stacks.ecs.fleet import EcsFleet
from stacks.ecs.metrics import EcsMetrics
from stacks.ecs.service import EcsService
from stacks.endpoint.scaling import scheduled_actions
from workloads import Autoscaling

Tracking = scaling.CfnScalingPolicy.TargetTrackingScalingPolicyConfigurationProperty
# A new instance takes minutes to serve; only then does the larger fleet's metric show whether it needs one more.
SCALE_OUT_COOLDOWN = Duration.minutes(5)
# Longer than the dip between two waves: an idle instance costs cents, a missing one costs the objective.
SCALE_IN_COOLDOWN = Duration.minutes(10)


CPU = scaling.CfnScalingPolicy.PredefinedMetricSpecificationProperty(
    predefined_metric_type="ECSServiceAverageCPUUtilization"
)


class EcsScaling(Construct):
    """Uses L1, as for endpoints: the L2 would add a role although the service-linked one is used."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        workload: str,
        fleet: EcsFleet,
        service: EcsService,
        autoscaling: Autoscaling,
        safety_factor: float,
    ) -> None:
        super().__init__(scope, id)
        target = scaling.CfnScalableTarget(
            self,
            "Target",
            service_namespace="ecs",
            scalable_dimension="ecs:service:DesiredCount",
            resource_id=f"service/{fleet.cluster.cluster_name}/{service.service.service_name}",
            min_capacity=autoscaling.min_capacity,
            max_capacity=autoscaling.max_capacity,
            scheduled_actions=scheduled_actions(autoscaling.scheduled_minimums),
        )
        by_invocations = bool(fleet.machine.devices)
        cpu_percent = (autoscaling.target_share or safety_factor) * 100
        tracking = Tracking(
            customized_metric_specification=_invocations(workload) if by_invocations else None,
            predefined_metric_specification=None if by_invocations else CPU,
            target_value=autoscaling.target_invocations_per_instance if by_invocations else cpu_percent,
            scale_out_cooldown=_seconds(autoscaling.scale_out_cooldown_s, SCALE_OUT_COOLDOWN),
            scale_in_cooldown=_seconds(autoscaling.scale_in_cooldown_s, SCALE_IN_COOLDOWN),
        )
        scaling.CfnScalingPolicy(
            self,
            "Policy",
            policy_name="InvocationsPerTask" if by_invocations else "CpuUtilization",
            policy_type="TargetTrackingScaling",
            scaling_target_id=target.ref,
            target_tracking_scaling_policy_configuration=tracking,
        )


def _invocations(workload: str) -> scaling.CfnScalingPolicy.CustomizedMetricSpecificationProperty:
    metric = EcsMetrics(workload=workload).invocations_per_task()
    return scaling.CfnScalingPolicy.CustomizedMetricSpecificationProperty(
        namespace=metric.namespace,
        metric_name=metric.metric_name,
        statistic=metric.statistic,
        unit="Count",
        dimensions=[
            scaling.CfnScalingPolicy.MetricDimensionProperty(name=name, value=value)
            for name, value in (metric.dimensions or {}).items()
        ],
    )


def _seconds(chosen: int | None, otherwise: Duration) -> float:
    """Returns the cooldown of a simulated recommendation, or else the one of every service."""
    return otherwise.to_seconds() if chosen is None else chosen
