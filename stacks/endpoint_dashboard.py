"""One page on an endpoint: load, latency against the objective, errors, and how full the fleet is."""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.endpoint_alarms import MICROSECONDS_PER_MILLISECOND
from stacks.workload_endpoint import WorkloadEndpoint
from workloads import LatencyObjective

PERCENTILES = ("p50", "p90", "p99")


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointDashboardProps:
    endpoint: WorkloadEndpoint
    objective: LatencyObjective


class EndpointDashboard(Construct):
    def __init__(self, scope: Construct, id: str, props: EndpointDashboardProps) -> None:
        super().__init__(scope, id)
        endpoint = props.endpoint
        dashboard = cloudwatch.Dashboard(self, "Dashboard", default_interval=Duration.hours(3))
        dashboard.add_widgets(_model_latency(endpoint, props.objective), _overhead(endpoint, props.objective))
        dashboard.add_widgets(
            _graph("Invocations per minute", endpoint.metric_invocations()),
            _graph("Errors per minute", endpoint.metric_client_errors(), endpoint.metric_server_errors()),
        )
        dashboard.add_widgets(
            _graph("Instances in service", _instances(endpoint)),
            _graph(
                "CPU (100 % per core) and memory (%)",
                endpoint.metric_cpu_utilization(),
                endpoint.metric_memory_utilization(),
            ),
        )


def _model_latency(endpoint: WorkloadEndpoint, objective: LatencyObjective) -> cloudwatch.GraphWidget:
    shown = dict.fromkeys((*PERCENTILES, objective.percentile.lower()))
    return _graph(
        "Model latency (µs)",
        *(endpoint.metric_model_latency(statistic) for statistic in shown),
        limit=_limit(f"Objective, {objective.percentile}", objective.model_latency_ms),
    )


def _overhead(endpoint: WorkloadEndpoint, objective: LatencyObjective) -> cloudwatch.GraphWidget:
    limit = _limit("Alarm limit, average", objective.overhead_latency_ms)
    return _graph("Overhead latency (µs)", endpoint.metric_overhead_latency(), limit=limit)


def _instances(endpoint: WorkloadEndpoint) -> cloudwatch.MathExpression:
    # SageMaker reports no instance count; each invocation counts 1/instances in InvocationsPerInstance.
    return cloudwatch.MathExpression(
        expression="invocations / per_instance",
        using_metrics={
            "invocations": endpoint.metric_invocations(),
            "per_instance": endpoint.metric_invocations_per_instance(),
        },
        label="Instances",
        period=Duration.minutes(1),
    )


def _limit(label: str, milliseconds: float) -> cloudwatch.HorizontalAnnotation:
    return cloudwatch.HorizontalAnnotation(value=milliseconds * MICROSECONDS_PER_MILLISECOND, label=label)


def _graph(
    title: str, *metrics: cloudwatch.IMetric, limit: cloudwatch.HorizontalAnnotation | None = None
) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(
        title=title, left=list(metrics), left_annotations=[limit] if limit else [], width=12, height=6
    )
