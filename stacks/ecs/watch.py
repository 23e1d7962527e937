"""Alarms and dashboard of a service. Limits are the objective and the measured capacity."""

from dataclasses import dataclass
from functools import partial

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from stacks.context import Options
from stacks.ecs import metrics as ecs_metrics
from stacks.ecs.service import EcsService
from stacks.paging import Paging, sustained_alarm
from stacks.widgets import cost_per_day, graph, limit_line, unknown_cost
from workloads import Candidate, LatencyObjective

BUSY_CPU_PERCENT = 90
RESETS_PER_MINUTE = 10
"""A task that ends resets a few connections; an overloaded task resets many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EcsServiceWatchProps:
    workload: str
    service: EcsService
    objective: LatencyObjective
    recommended: Candidate | None
    reports: bool
    """True where the server reports to CloudWatch itself: the Neuron server does, Triton does not."""
    own_key: bool
    options: Options


class EcsServiceWatch(Construct):
    """`paging.topic` to subscribe to. A deployment that makes the answers slow or wrong is rolled back."""

    def __init__(self, scope: Construct, id: str, props: EcsServiceWatchProps) -> None:
        super().__init__(scope, id)
        self._props = props
        about_answers = [self._latency(), *(self._reported() if props.reports else ())]
        alarms = [*about_answers, *self._health()]
        self.paging = Paging(
            self, "Paging", workload=props.workload, alarms=alarms, options=props.options, own_key=props.own_key
        )
        # The other alarms refer to the service, so the service cannot refer to them.
        props.service.service.enable_deployment_alarms(
            [alarm.alarm_name for alarm in about_answers], behavior=ecs.AlarmBehavior.ROLLBACK_ON_ALARM
        )
        EcsServiceDashboard(self, "Overview", props, self.paging.alarm)

    def _latency(self) -> cloudwatch.Alarm:
        objective, workload = self._props.objective, self._props.workload
        limit, percentile = objective.model_latency_ms, objective.percentile
        client_latency = ecs_metrics.client_latency(workload, percentile.lower())
        description = f"{percentile} client latency reached the objective, {limit:g} ms."
        return sustained_alarm(self, "ClientLatency", client_latency, limit, description)

    def _reported(self) -> list[cloudwatch.Alarm]:
        objective, workload, recommended = self._props.objective, self._props.workload, self._props.recommended
        capacity = recommended.max_invocations_per_minute if recommended else None
        limit, percentile = objective.model_latency_ms, objective.percentile
        alarms = [
            sustained_alarm(
                self,
                "ResponseTime",
                ecs_metrics.response_time(workload, percentile.lower()),
                limit,
                f"{percentile} response time in the server reached the objective, {limit:g} ms.",
            ),
            sustained_alarm(
                self,
                "ServerErrors",
                ecs_metrics.server_error_rate(workload),
                objective.max_error_rate,
                f"{objective.max_error_rate:.2%} of requests failed with a 5xx status.",
            ),
        ]
        if capacity is not None:
            per_task = ecs_metrics.invocations_per_task(workload)
            description = f"Invocations per minute and task reached the measured capacity, {capacity:,.0f}."
            alarms.append(sustained_alarm(self, "Saturation", per_task, capacity, description))
        return alarms

    def _health(self) -> list[cloudwatch.Alarm]:
        service, alarm, busy = self._props.service, partial(sustained_alarm, self), BUSY_CPU_PERCENT
        return [
            alarm("UnhealthyTasks", service.metric_unhealthy_tasks(), 1, "A task fails its health check."),
            alarm("Resets", service.metric_resets(), RESETS_PER_MINUTE, "Tasks reset connections."),
            alarm("Cpu", service.metric_cpu(), busy, "The tasks use all CPUs, so tokenisation is delayed."),
        ]


class EcsServiceDashboard(Construct):
    """One page, to be read in ten seconds: is anything wrong, latency, load, errors, fleet, cost."""

    def __init__(self, scope: Construct, id: str, props: EcsServiceWatchProps, alarm: cloudwatch.IAlarm) -> None:
        super().__init__(scope, id)
        self._props, service = props, props.service
        dashboard = cloudwatch.Dashboard(self, "Dashboard", default_interval=Duration.hours(3))
        dashboard.add_widgets(
            cloudwatch.AlarmStatusWidget(title="Is anything wrong?", alarms=[alarm], width=24, height=3)
        )
        dashboard.add_widgets(*self._latency())
        dashboard.add_widgets(*self._load())
        dashboard.add_widgets(
            graph("Healthy tasks", service.metric_healthy_tasks()), graph("CPU (%)", service.metric_cpu())
        )
        dashboard.add_widgets(self._cost(), graph("Memory (% of the reservation)", service.metric_memory()))

    def _latency(self) -> list[cloudwatch.GraphWidget]:
        objective, workload = self._props.objective, self._props.workload
        percentiles = dict.fromkeys(("p50", "p90", objective.percentile.lower()))
        metrics = {"Client latency (ms)": ecs_metrics.client_latency}
        if self._props.reports:
            metrics["Response time (ms)"] = ecs_metrics.response_time
        limit = limit_line(f"Objective, {objective.percentile}", objective.model_latency_ms)
        return [
            graph(title, *(metric(workload, percentile) for percentile in percentiles), limits=[limit])
            for title, metric in metrics.items()
        ]

    def _load(self) -> list[cloudwatch.GraphWidget]:
        workload, resets = self._props.workload, self._props.service.metric_resets()
        if not self._props.reports:
            return [graph("Connections reset, per minute", resets)]
        return [
            graph("Invocations per minute", ecs_metrics.invocations(workload)),
            graph("5xx and connections reset, per minute", ecs_metrics.server_errors(workload), resets),
        ]

    def _cost(self) -> cloudwatch.GraphWidget | cloudwatch.TextWidget:
        known = cost_per_day(self._props.recommended, "tasks", self._props.service.metric_healthy_tasks())
        if known is None:
            return unknown_cost(self._props.recommended)
        cost, estimate = known
        return graph("USD per day at the present size", cost, limits=[estimate])
