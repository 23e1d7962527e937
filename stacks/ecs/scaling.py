"""Target tracking of a service's tasks, with the recommendation's numbers.

On Inferentia it tracks invocations per task, which the server reports; on CPU it tracks the CPU.
"""

from constructs import Construct

from stacks.ecs.metrics import ServiceMetrics
from stacks.endpoint.scaling import cooldowns, customized, predefined, scalable_target, track
from workloads import Autoscaling

# A new instance takes minutes to serve; only then does the larger fleet's metric show whether it needs one more.
SCALE_OUT_COOLDOWN_S = 300
# Longer than the dip between two waves: an idle instance costs cents, a missing one costs the objective.
SCALE_IN_COOLDOWN_S = 600
CPU = "ECSServiceAverageCPUUtilization"


class EcsScaling(Construct):
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        service: ServiceMetrics,
        autoscaling: Autoscaling,
        cluster_name: str,
        by_invocations: bool,
        safety_factor: float,
    ) -> None:
        super().__init__(scope, id)
        resource_id = f"service/{cluster_name}/{service.service.service_name}"
        low, high, minimums = autoscaling.min_capacity, autoscaling.max_capacity, autoscaling.scheduled_minimums
        target = scalable_target(self, "ecs:service:DesiredCount", resource_id, low, high, minimums)
        invocations = service.metric_invocations_per_task()
        cpu_percent = (autoscaling.target_share or safety_factor) * 100
        track(
            self,
            "Policy",
            target,
            "InvocationsPerTask" if by_invocations else "CpuUtilization",
            customized_metric_specification=customized(invocations, "Count") if by_invocations else None,
            predefined_metric_specification=None if by_invocations else predefined(CPU),
            target_value=autoscaling.target_invocations_per_instance if by_invocations else cpu_percent,
            **cooldowns(autoscaling, SCALE_OUT_COOLDOWN_S, SCALE_IN_COOLDOWN_S),
        )
