"""Target tracking of a service's tasks, with the recommendation's numbers and no others.

On Inferentia it tracks invocations per task, which the server reports: no metric of a network load balancer or of ECS
grows with requests, and the CPU says little about the chips. On CPU it tracks the CPU, which is what saturates there
and which needs no report from Triton; its target is the safety factor that the recommendation's own target was made
with.
"""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_applicationautoscaling as scaling
from constructs import Construct

from stacks.ecs.fleet import EcsFleet
from stacks.ecs.metrics import invocations_per_task, reported_dimensions
from stacks.ecs.service import EcsService
from stacks.endpoint.scaling import scheduled_actions
from workloads import Autoscaling

Tracking = scaling.CfnScalingPolicy.TargetTrackingScalingPolicyConfigurationProperty
# A new instance takes minutes to serve; only then does the larger fleet's metric show whether it needs one more.
SCALE_OUT_COOLDOWN = Duration.minutes(5)
# Longer than the dip between two waves: an idle instance costs cents, a missing one costs the objective.
SCALE_IN_COOLDOWN = Duration.minutes(10)


@dataclass(frozen=True, kw_only=True, slots=True)
class EcsScalingProps:
    workload: str
    fleet: EcsFleet
    service: EcsService
    autoscaling: Autoscaling
    safety_factor: float


class EcsScaling(Construct):
    """Uses L1, as for endpoints: the L2 would add a role although the service-linked one is used."""

    def __init__(self, scope: Construct, id: str, props: EcsScalingProps) -> None:
        super().__init__(scope, id)
        target = scaling.CfnScalableTarget(
            self,
            "Target",
            service_namespace="ecs",
            scalable_dimension="ecs:service:DesiredCount",
            resource_id=f"service/{props.fleet.cluster.cluster_name}/{props.service.service.service_name}",
            min_capacity=props.autoscaling.min_capacity,
            max_capacity=props.autoscaling.max_capacity,
            scheduled_actions=scheduled_actions(props.autoscaling.scheduled_minimums),
        )
        by_invocations = bool(props.fleet.machine.devices)
        scaling.CfnScalingPolicy(
            self,
            "Policy",
            policy_name="InvocationsPerTask" if by_invocations else "CpuUtilization",
            policy_type="TargetTrackingScaling",
            scaling_target_id=target.ref,
            target_tracking_scaling_policy_configuration=_by_invocations(props) if by_invocations else _by_cpu(props),
        )


def _by_invocations(props: EcsScalingProps) -> Tracking:
    metric = invocations_per_task(props.workload)
    return Tracking(
        customized_metric_specification=scaling.CfnScalingPolicy.CustomizedMetricSpecificationProperty(
            namespace=metric.namespace,
            metric_name=metric.metric_name,
            statistic=metric.statistic,
            unit="Count",
            dimensions=[
                scaling.CfnScalingPolicy.MetricDimensionProperty(name=name, value=value)
                for name, value in reported_dimensions(props.workload).items()
            ],
        ),
        target_value=props.autoscaling.target_invocations_per_instance,
        scale_out_cooldown=_seconds(props.autoscaling.scale_out_cooldown_s, SCALE_OUT_COOLDOWN),
        scale_in_cooldown=_seconds(props.autoscaling.scale_in_cooldown_s, SCALE_IN_COOLDOWN),
    )


def _by_cpu(props: EcsScalingProps) -> Tracking:
    return Tracking(
        predefined_metric_specification=scaling.CfnScalingPolicy.PredefinedMetricSpecificationProperty(
            predefined_metric_type="ECSServiceAverageCPUUtilization"
        ),
        target_value=(props.autoscaling.target_share or props.safety_factor) * 100,
        scale_out_cooldown=_seconds(props.autoscaling.scale_out_cooldown_s, SCALE_OUT_COOLDOWN),
        scale_in_cooldown=_seconds(props.autoscaling.scale_in_cooldown_s, SCALE_IN_COOLDOWN),
    )


def _seconds(chosen: int | None, otherwise: Duration) -> float:
    """Returns the cooldown of a simulated recommendation, or else the one of every service."""
    return otherwise.to_seconds() if chosen is None else chosen
