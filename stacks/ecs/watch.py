"""The alarms of a service: every latency threshold is the workload's objective, capacity the measured one.

Each alarm asks for three bad minutes of five, as an endpoint's do. Silence is no alarm: without callers nothing is
reported, and unhealthy targets are counted by the load balancer whether anybody calls or not.
"""

from dataclasses import dataclass

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from stacks.ecs import metrics as ecs_metrics
from stacks.ecs.dashboard import EcsServiceDashboard, EcsServiceDashboardProps
from stacks.ecs.service import EcsService
from stacks.paging import Paging, PagingProps
from stacks.sustained_alarm import sustained_alarm
from workloads import Candidate, LatencyObjective

BUSY_CPU_PERCENT = 90
RESETS_PER_MINUTE = 10
"""A task that ends resets a few connections; one that is overrun, many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EcsServiceWatchProps:
    workload: str
    service: EcsService
    objective: LatencyObjective
    recommended: Candidate | None
    reports: bool
    """Whether the server reports to CloudWatch itself: the Neuron server does, Triton does not."""


class EcsServiceWatch(Construct):
    """`paging.topic` is whom to subscribe to. A deployment under which the answers become slow or wrong rolls back."""

    def __init__(self, scope: Construct, id: str, props: EcsServiceWatchProps) -> None:
        super().__init__(scope, id)
        self._props = props
        of_answers = [self._latency(), *(self._reported() if props.reports else ())]
        alarms = [*of_answers, *self._health()]
        self.paging = Paging(self, "Paging", PagingProps(workload=props.workload, alarms=alarms))
        # Only these: the others name the service, which cannot name them then.
        props.service.service.enable_deployment_alarms(
            [alarm.alarm_name for alarm in of_answers], behavior=ecs.AlarmBehavior.ROLLBACK_ON_ALARM
        )
        EcsServiceDashboard(
            self,
            "Overview",
            EcsServiceDashboardProps(
                workload=props.workload,
                service=props.service,
                objective=props.objective,
                recommended=props.recommended,
                reports=props.reports,
                alarm=self.paging.alarm,
            ),
        )

    def _latency(self) -> cloudwatch.Alarm:
        objective, workload = self._props.objective, self._props.workload
        limit, percentile = objective.model_latency_ms, objective.percentile
        waited = ecs_metrics.client_latency(workload, percentile.lower())
        told = f"{percentile} of what callers wait, end to end, reached the objective, {limit:g} ms."
        return sustained_alarm(self, "ClientLatency", waited, limit, told)

    def _reported(self) -> list[cloudwatch.Alarm]:
        objective, workload, recommended = self._props.objective, self._props.workload, self._props.recommended
        capacity = recommended.max_invocations_per_minute if recommended else None
        limit, percentile = objective.model_latency_ms, objective.percentile
        time = ecs_metrics.response_time(workload, percentile.lower())
        told = f"{percentile} response time in the server reached the objective, {limit:g} ms."
        alarms = [
            sustained_alarm(self, "ResponseTime", time, limit, told),
            sustained_alarm(
                self,
                "ServerErrors",
                ecs_metrics.server_error_rate(workload),
                objective.max_error_rate,
                f"{objective.max_error_rate:.2%} of the requests or more were answered with a 5xx.",
            ),
        ]
        if capacity is not None:
            told = f"Tasks got the {capacity:,.0f} invocations a minute that one was measured to hold, on average."
            alarms.append(
                sustained_alarm(self, "Saturation", ecs_metrics.invocations_per_task(workload), capacity, told)
            )
        return alarms

    def _health(self) -> list[cloudwatch.Alarm]:
        service = self._props.service
        return [
            sustained_alarm(
                self, "UnhealthyTasks", service.metric_unhealthy_tasks(), 1, "A task does not answer its health check."
            ),
            sustained_alarm(
                self, "Resets", service.metric_resets(), RESETS_PER_MINUTE, "Tasks reset connections of callers."
            ),
            sustained_alarm(
                self,
                "Cpu",
                self._props.service.metric_cpu(),
                BUSY_CPU_PERCENT,
                "The tasks' CPUs are full: tokenising waits for them.",
            ),
        ]
