"""One page on a service, to be read in ten seconds: is anything wrong, latency, load, errors, fleet, cost."""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.ecs import metrics as ecs_metrics
from stacks.ecs.service import MINUTE, EcsService
from workloads import Candidate, LatencyObjective

HOURS_PER_DAY = 24
NOT_MEASURED = "there is no recommendation yet."


@dataclass(frozen=True, kw_only=True, slots=True)
class EcsServiceDashboardProps:
    workload: str
    service: EcsService
    objective: LatencyObjective
    recommended: Candidate | None
    reports: bool
    alarm: cloudwatch.IAlarm


class EcsServiceDashboard(Construct):
    def __init__(self, scope: Construct, id: str, props: EcsServiceDashboardProps) -> None:
        super().__init__(scope, id)
        self._props, service = props, props.service
        dashboard = cloudwatch.Dashboard(self, "Dashboard", default_interval=Duration.hours(3))
        dashboard.add_widgets(
            cloudwatch.AlarmStatusWidget(title="Is anything wrong?", alarms=[props.alarm], width=24, height=3)
        )
        dashboard.add_widgets(*self._latency())
        dashboard.add_widgets(*self._load())
        dashboard.add_widgets(
            _graph("Healthy tasks", service.metric_healthy_tasks()), _graph("CPU (%)", service.metric_cpu())
        )
        dashboard.add_widgets(self._cost(), _graph("Memory (% of what is reserved)", service.metric_memory()))

    def _latency(self) -> list[cloudwatch.GraphWidget]:
        objective, workload = self._props.objective, self._props.workload
        percentiles = dict.fromkeys(("p50", "p90", objective.percentile.lower()))
        kinds = {"Client latency (ms)": ecs_metrics.client_latency}
        if self._props.reports:
            kinds["Response time (ms)"] = ecs_metrics.response_time
        limit = _limit(f"Objective, {objective.percentile}", objective.model_latency_ms)
        return [
            _graph(title, *(metric(workload, each) for each in percentiles), limit=limit)
            for title, metric in kinds.items()
        ]

    def _load(self) -> list[cloudwatch.GraphWidget]:
        workload, resets = self._props.workload, self._props.service.metric_resets()
        if not self._props.reports:
            return [_graph("Connections reset, per minute", resets)]
        return [
            _graph("Invocations per minute", ecs_metrics.invocations(workload)),
            _graph("5xx and connections reset, per minute", ecs_metrics.server_errors(workload), resets),
        ]

    def _cost(self) -> cloudwatch.GraphWidget | cloudwatch.TextWidget:
        """The load balancer counts the tasks; what they cost together at the peak is the recommendation's."""
        recommended = self._props.recommended
        if recommended is None or recommended.cost_per_hour_usd is None or recommended.instance_count is None:
            reason = (recommended and recommended.cost_reason) or NOT_MEASURED
            return cloudwatch.TextWidget(markdown=f"**Cost per day** is not known: {reason}", width=12, height=6)
        per_hour, count = recommended.cost_per_hour_usd, recommended.instance_count
        spent = cloudwatch.MathExpression(
            expression=f"tasks * {per_hour!r} / {count} * {HOURS_PER_DAY}",
            using_metrics={"tasks": self._props.service.metric_healthy_tasks()},
            label="USD per day",
            period=MINUTE,
        )
        estimate = per_hour * HOURS_PER_DAY
        limit = _limit(f"The recommendation's estimate, at the peak: {estimate:,.2f}", estimate)
        return _graph("USD per day at the present size", spent, limit=limit)


def _limit(label: str, value: float) -> cloudwatch.HorizontalAnnotation:
    return cloudwatch.HorizontalAnnotation(value=value, label=label)


def _graph(
    title: str, *metrics: cloudwatch.IMetric, limit: cloudwatch.HorizontalAnnotation | None = None
) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(
        title=title, left=list(metrics), left_annotations=[limit] if limit else [], width=12, height=6
    )
