"""Alarms and dashboard of a service. Limits are the objective and the measured capacity."""

from functools import partial

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from stacks.context import Options
from stacks.ecs.metrics import ServiceMetrics
from stacks.paging import Paging, sustained_alarm
from stacks.widgets import cost_widget, graph, limit_line
from workloads import Candidate, LatencyObjective

BUSY_CPU_PERCENT = 90
RESETS_PER_MINUTE = 10
"""A task that ends resets a few connections; an overloaded task resets many."""


class EcsServiceWatch(Construct):
    """`paging.topic` to subscribe to. A deployment that makes the answers slow or wrong is rolled back.

    `reports` is True where the server reports to CloudWatch itself: the Neuron server does, Triton does not.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        service: ServiceMetrics,
        objective: LatencyObjective,
        recommended: Candidate | None,
        reports: bool,
        own_key: bool,
        options: Options,
    ) -> None:
        super().__init__(scope, id)
        self._service, self._objective, self._recommended = service, objective, recommended
        self._reports = reports
        about_answers = self._about_answers()
        alarms = [*about_answers, *self._health()]
        self.paging = Paging(self, "Paging", workload=service.workload, alarms=alarms, options=options, own_key=own_key)
        # The other alarms refer to the service, so the service cannot refer to them.
        service.service.enable_deployment_alarms(
            [alarm.alarm_name for alarm in about_answers], behavior=ecs.AlarmBehavior.ROLLBACK_ON_ALARM
        )
        self._dashboard(Construct(self, "Overview"))

    def _about_answers(self) -> list[cloudwatch.Alarm]:
        objective, service, alarm = self._objective, self._service, partial(sustained_alarm, self)
        capacity = self._recommended.max_invocations_per_minute if self._recommended else None
        limit, statistic, errors = objective.model_latency_ms, objective.percentile.lower(), objective.max_error_rate
        text = f"{objective.percentile} client latency reached the objective, {limit:g} ms."
        alarms = [alarm("ClientLatency", service.metric_client_latency(statistic), limit, text)]
        if self._reports:
            text = f"{objective.percentile} response time in the server reached the objective, {limit:g} ms."
            alarms.append(alarm("ResponseTime", service.metric_response_time(statistic), limit, text))
            text = f"{errors:.2%} of requests failed with a 5xx status."
            alarms.append(alarm("ServerErrors", service.metric_server_error_rate(), errors, text))
        if self._reports and capacity is not None:
            text = f"Invocations per minute and task reached the measured capacity, {capacity:,.0f}."
            alarms.append(alarm("Saturation", service.metric_invocations_per_task(), capacity, text))
        return alarms

    def _health(self) -> list[cloudwatch.Alarm]:
        service, alarm, busy = self._service, partial(sustained_alarm, self), BUSY_CPU_PERCENT
        return [
            alarm("UnhealthyTasks", service.metric_unhealthy_tasks(), 1, "A task fails its health check."),
            alarm("Resets", service.metric_resets(), RESETS_PER_MINUTE, "Tasks reset connections."),
            alarm("Cpu", service.metric_cpu(), busy, "The tasks use all CPUs, so tokenisation is delayed."),
        ]

    def _dashboard(self, scope: Construct) -> None:
        """One page, to be read in ten seconds: is anything wrong, latency, load, errors, fleet, cost."""
        service, alarms = self._service, [self.paging.alarm]
        dashboard = cloudwatch.Dashboard(scope, "Dashboard", default_interval=Duration.hours(3))
        dashboard.add_widgets(
            cloudwatch.AlarmStatusWidget(title="Is anything wrong?", alarms=alarms, width=24, height=3)
        )
        dashboard.add_widgets(*self._latency())
        dashboard.add_widgets(*self._load())
        dashboard.add_widgets(
            graph("Healthy tasks", service.metric_healthy_tasks()), graph("CPU (%)", service.metric_cpu())
        )
        title, healthy = "USD per day at the present size", service.metric_healthy_tasks()
        cost = cost_widget(self._recommended, "tasks", healthy, title)
        dashboard.add_widgets(cost, graph("Memory (% of the reservation)", service.metric_memory()))

    def _latency(self) -> list[cloudwatch.GraphWidget]:
        objective = self._objective
        percentiles = dict.fromkeys(("p50", "p90", objective.percentile.lower()))
        metrics = {"Client latency (ms)": self._service.metric_client_latency}
        if self._reports:
            metrics["Response time (ms)"] = self._service.metric_response_time
        limit = limit_line(f"Objective, {objective.percentile}", objective.model_latency_ms)
        return [graph(title, *map(metric, percentiles), limits=[limit]) for title, metric in metrics.items()]

    def _load(self) -> list[cloudwatch.GraphWidget]:
        service, resets = self._service, self._service.metric_resets()
        if not self._reports:
            return [graph("Connections reset, per minute", resets)]
        return [
            graph("Invocations per minute", service.metric_invocations()),
            graph("5xx and connections reset, per minute", service.metric_server_errors(), resets),
        ]
