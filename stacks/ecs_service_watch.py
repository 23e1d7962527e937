"""Alarms and dashboard of a service: every latency threshold is the workload's objective, capacity the measured one.

Each alarm asks for three bad minutes of five, as an endpoint's do. Silence is no alarm: without callers nothing is
reported, and unhealthy targets are counted by the load balancer whether anybody calls or not.
"""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from stacks import ecs_metrics
from stacks.ecs_service import EcsService
from stacks.paging import Paging, PagingProps
from workloads import LatencyObjective

EVALUATION_PERIODS = 5
DATAPOINTS_TO_ALARM = 3
BUSY_CPU_PERCENT = 90
RESETS_PER_MINUTE = 10
"""A task that ends resets a few connections; one that is overrun, many."""
MINUTE = Duration.minutes(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class EcsServiceWatchProps:
    workload: str
    service: EcsService
    objective: LatencyObjective
    capacity_per_minute: float | None
    """Invocations per minute that one task was measured to hold; None without a recommendation."""
    reports: bool
    """Whether the server reports to CloudWatch itself: the Neuron server does, Triton does not."""


class EcsServiceWatch(Construct):
    """`paging.topic` is whom to subscribe to. A deployment under which the answers become slow or wrong rolls back."""

    def __init__(self, scope: Construct, id: str, props: EcsServiceWatchProps) -> None:
        super().__init__(scope, id)
        self._props = props
        self._http = props.service.target_groups["http"]
        of_answers = [self._latency(), *(self._reported() if props.reports else ())]
        alarms = [*of_answers, *self._health()]
        self.paging = Paging(self, "Paging", PagingProps(workload=props.workload, alarms=alarms))
        # Only these: the others name the service, which cannot name them then.
        props.service.service.enable_deployment_alarms(
            [alarm.alarm_name for alarm in of_answers], behavior=ecs.AlarmBehavior.ROLLBACK_ON_ALARM
        )
        self._dashboard()

    def _latency(self) -> cloudwatch.Alarm:
        objective, workload = self._props.objective, self._props.workload
        limit, percentile = objective.model_latency_ms, objective.percentile
        waited = ecs_metrics.client_latency(workload, percentile.lower())
        told = f"{percentile} of what callers wait, end to end, reached the objective, {limit:g} ms."
        return self._alarm("ClientLatency", waited, limit, told)

    def _reported(self) -> list[cloudwatch.Alarm]:
        objective, workload, capacity = self._props.objective, self._props.workload, self._props.capacity_per_minute
        limit, percentile = objective.model_latency_ms, objective.percentile
        time = ecs_metrics.response_time(workload, percentile.lower())
        told = f"{percentile} response time in the server reached the objective, {limit:g} ms."
        alarms = [
            self._alarm("ResponseTime", time, limit, told),
            self._alarm("ServerErrors", ecs_metrics.server_errors(workload), 1, "Requests were answered with a 5xx."),
        ]
        if capacity is not None:
            told = f"Tasks got the {capacity:,.0f} invocations a minute that one was measured to hold, on average."
            alarms.append(self._alarm("Saturation", ecs_metrics.invocations_per_task(workload), capacity, told))
        return alarms

    def _health(self) -> list[cloudwatch.Alarm]:
        unhealthy = self._http.metrics.un_healthy_host_count(period=MINUTE, statistic="Maximum")
        return [
            self._alarm("UnhealthyTasks", unhealthy, 1, "A task does not answer its health check."),
            self._alarm("Resets", self._resets(), RESETS_PER_MINUTE, "Tasks reset connections of callers."),
            self._alarm("Cpu", self._cpu(), BUSY_CPU_PERCENT, "The tasks' CPUs are full: tokenising waits for them."),
        ]

    def _resets(self) -> cloudwatch.Metric:
        return self._props.service.balancer.metrics.tcp_target_reset_count(period=MINUTE, statistic="Sum")

    def _cpu(self) -> cloudwatch.Metric:
        return self._props.service.service.metric_cpu_utilization(period=MINUTE)

    def _alarm(self, id: str, metric: cloudwatch.Metric, threshold: float, description: str) -> cloudwatch.Alarm:
        return cloudwatch.Alarm(
            self,
            id,
            metric=metric,
            threshold=threshold,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            evaluation_periods=EVALUATION_PERIODS,
            datapoints_to_alarm=DATAPOINTS_TO_ALARM,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=description,
        )

    def _dashboard(self) -> None:
        dashboard = cloudwatch.Dashboard(self, "Dashboard", default_interval=Duration.hours(3))
        dashboard.add_widgets(
            cloudwatch.AlarmStatusWidget(title="Is anything wrong?", alarms=[self.paging.alarm], width=24, height=3)
        )
        dashboard.add_widgets(*self._latency_graphs())
        dashboard.add_widgets(*self._load_graphs())
        dashboard.add_widgets(
            _graph("Healthy tasks", self._http.metrics.healthy_host_count(period=MINUTE, statistic="Minimum")),
            _graph(
                "CPU and memory (%)",
                self._cpu(),
                self._props.service.service.metric_memory_utilization(period=MINUTE),
            ),
        )

    def _latency_graphs(self) -> list[cloudwatch.GraphWidget]:
        objective, workload = self._props.objective, self._props.workload
        percentiles = dict.fromkeys(("p50", "p90", objective.percentile.lower()))
        kinds = {"Client latency (ms)": ecs_metrics.client_latency}
        if self._props.reports:
            kinds["Response time (ms)"] = ecs_metrics.response_time
        limit = cloudwatch.HorizontalAnnotation(
            value=objective.model_latency_ms, label=f"Objective, {objective.percentile}"
        )
        return [
            _graph(title, *(metric(workload, each) for each in percentiles), limit=limit)
            for title, metric in kinds.items()
        ]

    def _load_graphs(self) -> list[cloudwatch.GraphWidget]:
        workload = self._props.workload
        if not self._props.reports:
            return [_graph("Connections reset, per minute", self._resets())]
        return [
            _graph("Invocations per minute", ecs_metrics.invocations(workload)),
            _graph("5xx and connections reset, per minute", ecs_metrics.server_errors(workload), self._resets()),
        ]


def _graph(
    title: str, *metrics: cloudwatch.IMetric, limit: cloudwatch.HorizontalAnnotation | None = None
) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(
        title=title, left=list(metrics), left_annotations=[limit] if limit else [], width=12, height=6
    )
